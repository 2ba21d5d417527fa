import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** What the clients of `run` share: the script, the output and the marker. */
abstract class Client {
    private static final String END = "the end of the campaign";
    private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    final String url;
    final List<String> lines;

    Client(String[] args) throws Exception {
        url = args[0];
        lines = Files.readAllLines(Path.of(args[1]));
    }

    /** Prints a message, and ends with the marker. */
    void received(String message) {
        out.print(message + "\n");
        out.flush();
        if (message.contains(END)) {
            System.exit(0);
        }
    }

    static void failed(Object why) {
        System.err.println("error: " + why);
        System.exit(1);
    }
}
