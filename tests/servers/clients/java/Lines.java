import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Questions come as lines of JSON, each is answered by one; see ../node/lines.mjs. */
final class Lines {
    /** What a client library does with commands; an error of one of several is its reply. */
    interface Client {
        Object single(List<String> words) throws Exception;

        List<?> pipeline(List<List<String>> commands) throws Exception;

        List<?> multi(List<List<String>> commands) throws Exception;
    }

    final int port;
    final String ca, token;
    final double timeout;

    Lines(String told) {
        JsonObject config = JsonParser.parseString(told).getAsJsonObject();
        port = config.get("port").getAsInt();
        ca = config.has("ca") ? config.get("ca").getAsString() : null;
        token = config.has("token") ? config.get("token").getAsString() : null;
        timeout = config.has("timeout") ? config.get("timeout").getAsDouble() : 0;
    }

    void serve(Client client) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var json = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();
        for (String line; (line = in.readLine()) != null; ) {
            JsonObject asked = JsonParser.parseString(line).getAsJsonObject();
            List<List<String>> commands = new ArrayList<>();
            for (JsonElement one : asked.getAsJsonArray("commands")) commands.add(words(one.getAsJsonArray()));
            Object answer;
            try {
                answer = Map.of("replies", plain(switch (asked.get("run").getAsString()) {
                    case "single" -> List.of(client.single(commands.get(0)));
                    case "pipeline" -> client.pipeline(commands);
                    default -> client.multi(commands);
                }));
            } catch (Exception reason) {
                answer = plain(reason);
            }
            System.out.println(json.toJson(answer));
        }
        System.exit(0);
    }

    private static List<String> words(JsonArray command) {
        List<String> found = new ArrayList<>();
        for (JsonElement word : command) found.add(word.getAsString());
        return found;
    }

    private static Object plain(Object reply) {
        if (reply instanceof byte[] bytes) return new String(bytes, StandardCharsets.UTF_8);
        if (reply instanceof ByteBuffer bytes) return StandardCharsets.UTF_8.decode(bytes).toString();
        if (reply instanceof Exception reason) return Map.of("error", reason.getMessage() == null ? reason.toString() : reason.getMessage());
        if (reply instanceof Map.Entry<?, ?> entry) return List.of(plain(entry.getKey()), plain(entry.getValue()));
        if (reply instanceof List<?> list) return list.stream().map(Lines::plain).toList();
        if (reply instanceof Map<?, ?> map) {
            Map<Object, Object> found = new LinkedHashMap<>();
            map.forEach((name, value) -> found.put(plain(name), plain(value)));
            return found;
        }
        return reply;
    }

    static String[] rest(List<String> words) {
        return words.subList(1, words.size()).toArray(String[]::new);
    }
}
