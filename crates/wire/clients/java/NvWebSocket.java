import com.neovisionaries.ws.client.WebSocket;
import com.neovisionaries.ws.client.WebSocketAdapter;
import com.neovisionaries.ws.client.WebSocketException;
import com.neovisionaries.ws.client.WebSocketExtension;
import com.neovisionaries.ws.client.WebSocketFactory;

class NvWebSocket extends Client {
    NvWebSocket(String[] args) throws Exception {
        super(args);
        WebSocket socket = new WebSocketFactory().createSocket(url);
        socket.addExtension(WebSocketExtension.PERMESSAGE_DEFLATE);
        socket.addListener(new WebSocketAdapter() {
            @Override
            public void onTextMessage(WebSocket socket, String text) {
                received(text);
            }

            @Override
            public void onError(WebSocket socket, WebSocketException why) {
                failed(why);
            }
        });
        socket.connect();
        lines.forEach(socket::sendText);
    }

    public static void main(String[] args) throws Exception {
        new NvWebSocket(args);
    }
}
