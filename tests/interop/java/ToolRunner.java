import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools, one after the other, in one virtual machine.
 *
 * A line on standard input is a command, its parts in base64 with spaces between them: what is typed while it runs, its
 * class, and its arguments. The answer is a line with its exit code and all that it printed, in base64.
 */
public class ToolRunner {
    static class Ended extends RuntimeException {}

    static final ByteArrayOutputStream printed = new ByteArrayOutputStream();
    static Integer status;

    public static void main(String[] args) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = System.out;
        // Before any tool runs: Scala's keeps the stream that it finds first.
        PrintStream collected = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(collected);
        System.setErr(collected);
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] parts = Arrays.stream(line.split(" ", -1)).map(ToolRunner::decode).toArray(String[]::new);
            int code = run(parts[0], parts[1], Arrays.copyOfRange(parts, 2, parts.length));
            answers.println(code + " " + Base64.getEncoder().encodeToString(printed.toByteArray()));
            answers.flush();
        }
    }

    static void end(int code) {
        if (status == null) {
            status = code;
        }
        throw new Ended();
    }

    static int run(String typed, String tool, String[] arguments) throws Exception {
        printed.reset();
        status = null;
        System.setIn(new ByteArrayInputStream(typed.getBytes(StandardCharsets.UTF_8)));
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Ended)) {
                error.getCause().printStackTrace();
                return 1;
            }
        }
        return status == null ? 0 : status;
    }

    static String decode(String part) {
        return new String(Base64.getDecoder().decode(part), StandardCharsets.UTF_8);
    }
}
