import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.WebSocket;
import java.util.concurrent.CompletionStage;

class Jdk extends Client implements WebSocket.Listener {
    private final StringBuilder parts = new StringBuilder();

    Jdk(String[] args) throws Exception {
        super(args);
        WebSocket socket = HttpClient.newHttpClient().newWebSocketBuilder().buildAsync(URI.create(url), this).join();
        lines.forEach(line -> socket.sendText(line, true).join());
        Thread.currentThread().join();
    }

    @Override
    public CompletionStage<?> onText(WebSocket socket, CharSequence data, boolean last) {
        parts.append(data);
        if (last) {
            received(parts.toString());
            parts.setLength(0);
        }
        socket.request(1);
        return null;
    }

    @Override
    public void onError(WebSocket socket, Throwable why) {
        failed(why);
    }

    public static void main(String[] args) throws Exception {
        new Jdk(args);
    }
}
