import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.Response;
import okhttp3.WebSocket;
import okhttp3.WebSocketListener;

class OkHttp extends Client {
    OkHttp(String[] args) throws Exception {
        super(args);
        Request request = new Request.Builder().url(url).build();
        new OkHttpClient().newWebSocket(request, new WebSocketListener() {
            @Override
            public void onOpen(WebSocket socket, Response response) {
                lines.forEach(socket::send);
            }

            @Override
            public void onMessage(WebSocket socket, String text) {
                received(text);
            }

            @Override
            public void onFailure(WebSocket socket, Throwable why, Response response) {
                failed(why);
            }
        });
    }

    public static void main(String[] args) throws Exception {
        new OkHttp(args);
    }
}
