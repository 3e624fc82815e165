// go-redis. Questions come as lines of JSON, each is answered by one; see ../node/lines.mjs.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

type config struct {
	Port    int
	Ca      string
	Token   string
	Timeout float64
}

type question struct {
	Run      string
	Commands [][]any
}

type answer = map[string]any

func fault(reason error) answer { return answer{"error": reason.Error()} }

func plain(reply any) any {
	switch reply := reply.(type) {
	case error:
		return fault(reply)
	case []any:
		found := make([]any, len(reply))
		for at, one := range reply {
			found[at] = plain(one)
		}
		return found
	case map[any]any:
		found := answer{}
		for name, value := range reply {
			found[fmt.Sprint(name)] = plain(value)
		}
		return found
	}
	return reply
}

func result(done *redis.Cmd) any {
	reply, reason := done.Result()
	if reason != nil {
		return fault(reason)
	}
	return plain(reply)
}

func ask(client *redis.Client, asked question) answer {
	ctx := context.Background()
	if asked.Run == "single" {
		reply, reason := client.Do(ctx, asked.Commands[0]...).Result()
		if reason != nil {
			return fault(reason)
		}
		return answer{"replies": []any{plain(reply)}}
	}
	batch := client.Pipeline()
	if asked.Run == "multi" {
		batch = client.TxPipeline()
	}
	var sent []*redis.Cmd
	for _, words := range asked.Commands {
		sent = append(sent, batch.Do(ctx, words...))
	}
	_, reason := batch.Exec(ctx)
	var replied redis.Error
	if reason != nil && !errors.As(reason, &replied) {
		return fault(reason)
	}
	replies := []any{}
	for _, done := range sent {
		replies = append(replies, result(done))
	}
	return answer{"replies": replies}
}

func main() {
	var told config
	if reason := json.Unmarshal([]byte(os.Args[1]), &told); reason != nil {
		panic(reason)
	}
	options := &redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", told.Port)}
	if told.Ca != "" {
		pem, reason := os.ReadFile(told.Ca)
		if reason != nil {
			panic(reason)
		}
		known := x509.NewCertPool()
		known.AppendCertsFromPEM(pem)
		options.TLSConfig, options.Password = &tls.Config{RootCAs: known}, told.Token
	}
	if told.Timeout > 0 {
		options.ReadTimeout = time.Duration(told.Timeout * float64(time.Second))
	}
	client := redis.NewClient(options)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		decoder := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		decoder.UseNumber() // sequence numbers have 64 bits
		var asked question
		if reason := decoder.Decode(&asked); reason != nil {
			panic(reason)
		}
		for _, words := range asked.Commands {
			for at, word := range words {
				words[at] = fmt.Sprint(word)
			}
		}
		if reason := out.Encode(ask(client, asked)); reason != nil {
			panic(reason)
		}
	}
}
