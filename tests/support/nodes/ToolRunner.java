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
 * class, and its arguments. The answer is a line with its exit code and, in base64, what it printed on standard output, on
 * standard error, and on both as it came.
 */
public class ToolRunner {
    static class Ended extends RuntimeException {}

    /** One of the two streams; what is written to it is in {@link #printed}, too. */
    static class Collected extends ByteArrayOutputStream {
        @Override
        public synchronized void write(int value) {
            super.write(value);
            printed.write(value);
        }

        @Override
        public synchronized void write(byte[] bytes, int offset, int length) {
            super.write(bytes, offset, length);
            printed.write(bytes, offset, length);
        }
    }

    static final ByteArrayOutputStream printed = new ByteArrayOutputStream();
    static final Collected output = new Collected();
    static final Collected errors = new Collected();
    static Integer status;

    public static void main(String[] args) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = System.out;
        // Before any tool runs: Scala's keeps the stream that it finds first.
        System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] parts = Arrays.stream(line.split(" ", -1)).map(ToolRunner::decode).toArray(String[]::new);
            int code = run(parts[0], parts[1], Arrays.copyOfRange(parts, 2, parts.length));
            System.out.flush();
            System.err.flush();
            answers.println(code + " " + encode(output) + " " + encode(errors) + " " + encode(printed));
            answers.flush();
        }
        Runtime.getRuntime().halt(0); // whatever threads a tool has left behind
    }

    static void end(int code) {
        if (status == null) {
            status = code;
        }
        throw new Ended();
    }

    static int run(String typed, String tool, String[] arguments) {
        output.reset();
        errors.reset();
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
        } catch (ReflectiveOperationException error) {
            error.printStackTrace();
            return 1;
        }
        return status == null ? 0 : status;
    }

    static String encode(ByteArrayOutputStream stream) {
        return Base64.getEncoder().encodeToString(stream.toByteArray());
    }

    static String decode(String part) {
        return new String(Base64.getDecoder().decode(part), StandardCharsets.UTF_8);
    }
}
