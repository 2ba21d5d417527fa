import java.net.URI;
import org.java_websocket.client.WebSocketClient;
import org.java_websocket.drafts.Draft_6455;
import org.java_websocket.extensions.permessage_deflate.PerMessageDeflateExtension;
import org.java_websocket.handshake.ServerHandshake;

class JavaWebSocket extends Client {
    JavaWebSocket(String[] args) throws Exception {
        super(args);
        new WebSocketClient(new URI(url), new Draft_6455(new PerMessageDeflateExtension())) {
            @Override
            public void onOpen(ServerHandshake handshake) {
                lines.forEach(this::send);
            }

            @Override
            public void onMessage(String text) {
                received(text);
            }

            @Override
            public void onClose(int code, String reason, boolean remote) {
                failed(code + " " + reason);
            }

            @Override
            public void onError(Exception why) {
                failed(why);
            }
        }.connect();
    }

    public static void main(String[] args) throws Exception {
        new JavaWebSocket(args);
    }
}
