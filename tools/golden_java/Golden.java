import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.RawTaggedField;

/**
 * Encodes messages with Kafka's own classes. Each line of standard input is a class name, a version and the message in
 * the form of Kafka's JsonConverter (null: untouched defaults), parted by tabs; each line of standard output is the bytes in hexadecimal, or
 * "error: " and why.
 */
public final class Golden {
    private static final String[] PACKAGES = {
        "org.apache.kafka.common.message.",
        "org.apache.kafka.common.metadata.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.",
        "org.apache.kafka.raft.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.",
    };

    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", 3);
            try {
                out.println(encode(parts[0], Short.parseShort(parts[1]), mapper.readTree(parts[2])));
            } catch (Exception error) {
                Throwable cause = error instanceof InvocationTargetException ? error.getCause() : error;
                out.println("error: " + String.valueOf(cause).replace('\n', ' '));
            }
        }
        out.flush();
    }

    private static String encode(String name, short version, JsonNode shown) throws Exception {
        Message message = shown.isNull() ? untouched(name) : converted(name, version, shown);
        if (shown.has("unknownTaggedFields")) {
            for (JsonNode field : shown.get("unknownTaggedFields")) {
                byte[] raw = Base64.getDecoder().decode(field.get(1).asText());
                message.unknownTaggedFields().add(new RawTaggedField(field.get(0).asInt(), raw));
            }
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException("size and bytes written differ");
        }
        return HexFormat.of().formatHex(buffer.array());
    }

    /** A message, or with "Message$Struct" a struct within one, as its constructor leaves it. */
    private static Message untouched(String name) throws Exception {
        return (Message) classOf(name).getConstructor().newInstance();
    }

    private static Message converted(String name, short version, JsonNode shown) throws Exception {
        Method read = classOf(name + "JsonConverter").getMethod("read", JsonNode.class, short.class);
        return (Message) read.invoke(null, shown, version);
    }

    private static Class<?> classOf(String name) throws ClassNotFoundException {
        for (String prefix : PACKAGES) {
            try {
                return Class.forName(prefix + name);
            } catch (ClassNotFoundException next) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }
}
