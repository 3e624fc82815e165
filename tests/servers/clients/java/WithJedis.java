import java.io.FileInputStream;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.List;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.PipeliningBase;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.commands.ProtocolCommand;

/** Jedis. */
final class WithJedis implements Lines.Client {
    private final RedisClient client;

    private WithJedis(Lines told) throws Exception {
        var options = DefaultJedisClientConfig.builder();
        if (told.ca != null) {
            var known = KeyStore.getInstance(KeyStore.getDefaultType());
            known.load(null, null);
            try (var file = new FileInputStream(told.ca)) {
                known.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
            }
            var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(known);
            var context = SSLContext.getInstance("TLS");
            context.init(null, trust.getTrustManagers(), null);
            options.ssl(true).sslSocketFactory(context.getSocketFactory()).password(told.token);
        }
        if (told.timeout > 0) options.socketTimeoutMillis((int) (told.timeout * 1000));
        client = RedisClient.builder().hostAndPort("localhost", told.port).clientConfig(options.build()).build();
    }

    private static ProtocolCommand command(List<String> words) {
        return words.get(0)::getBytes;
    }

    @Override
    public Object single(List<String> words) {
        return client.sendCommand(command(words), Lines.rest(words));
    }

    private static List<Response<Object>> sent(PipeliningBase batch, List<List<String>> commands) {
        List<Response<Object>> found = new ArrayList<>();
        for (var words : commands) found.add(batch.sendCommand(command(words), Lines.rest(words)));
        return found;
    }

    @Override
    public List<?> pipeline(List<List<String>> commands) {
        List<Response<Object>> sent;
        try (var batch = client.pipelined()) {
            sent = sent(batch, commands);
            batch.sync();
        }
        List<Object> replies = new ArrayList<>();
        for (var one : sent) {
            try {
                replies.add(one.get());
            } catch (RuntimeException reason) {
                replies.add(reason);
            }
        }
        return replies;
    }

    @Override
    public List<?> multi(List<List<String>> commands) {
        try (var batch = client.multi()) {
            sent(batch, commands);
            return batch.exec();
        }
    }

    public static void main(String[] given) throws Exception {
        var lines = new Lines(given[0]);
        lines.serve(new WithJedis(lines));
    }
}
