import java.io.File;
import java.io.FileInputStream;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import javax.net.ssl.TrustManagerFactory;
import org.redisson.Redisson;
import org.redisson.api.BatchOptions;
import org.redisson.api.RFuture;
import org.redisson.client.codec.StringCodec;
import org.redisson.client.protocol.RedisCommand;
import org.redisson.client.protocol.decoder.ObjectListReplayDecoder;
import org.redisson.command.CommandAsyncExecutor;
import org.redisson.command.CommandBatchService;
import org.redisson.config.Config;

/** Redisson: commands that it does not know go through the executor of its objects. */
final class WithRedisson implements Lines.Client {
    private final CommandAsyncExecutor executor;

    private WithRedisson(Lines told) throws Exception {
        var config = new Config();
        var server = config.useSingleServer().setAddress((told.ca == null ? "redis" : "rediss") + "://localhost:" + told.port);
        if (told.ca != null) {
            var known = KeyStore.getInstance(KeyStore.getDefaultType());
            known.load(null, null);
            try (var file = new FileInputStream(new File(told.ca))) {
                known.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
            }
            var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(known);
            config.setSslTrustManagerFactory(trust);
            config.setPassword(told.token);
        }
        if (told.timeout > 0) server.setTimeout((int) (told.timeout * 1000));
        executor = ((Redisson) Redisson.create(config)).getCommandExecutor();
    }

    private static RFuture<Object> send(CommandAsyncExecutor by, List<String> words) {
        var command = new RedisCommand<>(words.get(0), new ObjectListReplayDecoder<Object>());
        return by.writeAsync("", StringCodec.INSTANCE, command, (Object[]) Lines.rest(words));
    }

    private static <T> T reply(RFuture<T> sent) throws Exception {
        try {
            return sent.toCompletableFuture().get();
        } catch (ExecutionException reason) {
            throw (Exception) reason.getCause();
        }
    }

    @Override
    public Object single(List<String> words) throws Exception {
        return reply(send(executor, words));
    }

    private List<?> batch(BatchOptions options, List<List<String>> commands) throws Exception {
        var batch = new CommandBatchService(executor, options);
        List<RFuture<Object>> sent = new ArrayList<>();
        for (var words : commands) sent.add(send(batch, words));
        try {
            return batch.execute().getResponses();
        } catch (CompletionException reason) {
            throw (Exception) reason.getCause();
        }
    }

    @Override
    public List<?> pipeline(List<List<String>> commands) throws Exception {
        return batch(BatchOptions.defaults(), commands);
    }

    @Override
    public List<?> multi(List<List<String>> commands) throws Exception {
        return batch(BatchOptions.defaults().executionMode(BatchOptions.ExecutionMode.REDIS_WRITE_ATOMIC), commands);
    }

    public static void main(String[] given) throws Exception {
        var lines = new Lines(given[0]);
        lines.serve(new WithRedisson(lines));
    }
}
