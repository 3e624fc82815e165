import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/** A node of OpenSearch in a process of its own: FOLDER PORT TRANSPORT_PORT. */
public class SearchNode extends Node {
    SearchNode(Environment environment) {
        super(environment, List.of(Netty4Plugin.class), false);
    }

    public static void main(String[] told) throws Exception {
        Settings settings = Settings.builder()
            .put("path.home", told[0]).put("path.data", told[0] + "/data").put("http.port", told[1])
            .put("transport.port", told[2]).put("network.host", "127.0.0.1").put("discovery.type", "single-node")
            .put("node.name", "one").put("cluster.routing.allocation.disk.threshold_enabled", false).build();
        Environment environment = InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), Path.of(told[0], "config"), () -> "one");
        SearchNode node = new SearchNode(environment);
        node.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> { try { node.close(); } catch (Exception ignored) { } }));
        Thread.currentThread().join();
    }
}
