import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SslOptions;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.output.ObjectOutput;
import io.lettuce.core.output.StatusOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.io.File;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

/** Lettuce. */
final class WithLettuce implements Lines.Client {
    private final StatefulRedisConnection<String, String> connection;
    private final RedisAsyncCommands<String, String> commands;
    private final long millis;

    private WithLettuce(Lines told) {
        var uri = RedisURI.builder().withHost("localhost").withPort(told.port);
        if (told.ca != null) uri.withSsl(true).withPassword(told.token.toCharArray());
        if (told.timeout > 0) uri.withTimeout(Duration.ofMillis((long) (told.timeout * 1000)));
        var made = uri.build();
        millis = made.getTimeout().toMillis();
        var client = RedisClient.create(made);
        if (told.ca != null) {
            var trusted = SslOptions.builder().trustManager(new File(told.ca)).build();
            client.setOptions(ClientOptions.builder().sslOptions(trusted).build());
        }
        connection = client.connect();
        commands = connection.async();
    }

    private record Keyword(String word) implements ProtocolKeyword {
        @Override
        public byte[] getBytes() {
            return word.getBytes();
        }

        @Override
        public String toString() {
            return word;
        }
    }

    /** Lettuce wants to know what kind of reply a command has. */
    @SuppressWarnings("unchecked")
    private static CommandOutput<String, String, Object> output(List<String> words) {
        CommandOutput<String, String, ?> found = new ObjectOutput<>(StringCodec.UTF8);
        if (words.contains("PING") || words.contains("CREATE")) found = new StatusOutput<>(StringCodec.UTF8);
        if (words.contains("CDC.ACK")) found = new IntegerOutput<>(StringCodec.UTF8);
        return (CommandOutput<String, String, Object>) found;
    }

    private RedisFuture<Object> send(List<String> words) {
        var arguments = new CommandArgs<>(StringCodec.UTF8);
        for (String word : Lines.rest(words)) arguments.add(word);
        return commands.dispatch(new Keyword(words.get(0)), output(words), arguments);
    }

    private <T> T reply(RedisFuture<T> sent) throws Exception {
        try {
            return sent.get(millis, TimeUnit.MILLISECONDS);
        } catch (ExecutionException reason) {
            throw (Exception) reason.getCause();
        }
    }

    @Override
    public Object single(List<String> words) throws Exception {
        return reply(send(words));
    }

    private List<RedisFuture<Object>> sent(List<List<String>> all) {
        List<RedisFuture<Object>> found = new ArrayList<>();
        for (var words : all) found.add(send(words));
        return found;
    }

    @Override
    public List<?> pipeline(List<List<String>> all) throws Exception {
        connection.setAutoFlushCommands(false);
        List<RedisFuture<Object>> sent;
        try {
            sent = sent(all);
            connection.flushCommands();
        } finally {
            connection.setAutoFlushCommands(true);
        }
        List<Object> replies = new ArrayList<>();
        for (var one : sent) {
            try {
                replies.add(reply(one));
            } catch (io.lettuce.core.RedisCommandExecutionException reason) {
                replies.add(reason);
            }
        }
        return replies;
    }

    @Override
    public List<?> multi(List<List<String>> all) throws Exception {
        commands.multi();
        sent(all);
        return reply(commands.exec()).stream().toList();
    }

    public static void main(String[] given) throws Exception {
        var lines = new Lines(given[0]);
        lines.serve(new WithLettuce(lines));
    }
}
