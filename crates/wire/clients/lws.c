// One client of `run`, on libwebsockets: lws URL SCRIPT. Sends every line of SCRIPT, prints every
// message, and ends with the marker.
#include <libwebsockets.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINES 200

static const char *const END = "the end of the campaign";
static char *lines[LINES];
static int line_count, sent, ended;
static char *message;
static size_t message_bytes;

static void send_line(struct lws *socket) {
    if (sent == line_count)
        return;
    size_t bytes = strlen(lines[sent]);
    unsigned char *buffer = malloc(LWS_PRE + bytes);
    memcpy(buffer + LWS_PRE, lines[sent++], bytes);
    lws_write(socket, buffer + LWS_PRE, bytes, LWS_WRITE_TEXT);
    free(buffer);
    lws_callback_on_writable(socket);
}

static void receive(struct lws *socket, const char *part, size_t bytes) {
    message = realloc(message, message_bytes + bytes + 1);
    memcpy(message + message_bytes, part, bytes);
    message_bytes += bytes;
    message[message_bytes] = 0;
    if (!lws_is_final_fragment(socket))
        return;
    fwrite(message, 1, message_bytes, stdout);
    putchar('\n');
    fflush(stdout);
    if (strstr(message, END))
        ended = 1;
    message_bytes = 0;
}

static int on_event(struct lws *socket, enum lws_callback_reasons event, void *user, void *in, size_t bytes) {
    (void)user;
    switch (event) {
    case LWS_CALLBACK_CLIENT_ESTABLISHED:
        lws_callback_on_writable(socket);
        break;
    case LWS_CALLBACK_CLIENT_WRITEABLE:
        send_line(socket);
        break;
    case LWS_CALLBACK_CLIENT_RECEIVE:
        receive(socket, in, bytes);
        break;
    case LWS_CALLBACK_CLIENT_CONNECTION_ERROR:
    case LWS_CALLBACK_CLIENT_CLOSED:
        ended = ended ? ended : 2;
        break;
    default:
        break;
    }
    return 0;
}

int main(int count, char **args) {
    if (count < 3)
        return 2;
    FILE *script = fopen(args[2], "r");
    char *line = NULL;
    size_t room = 0;
    for (ssize_t read; script && line_count < LINES && (read = getline(&line, &room, script)) > 0;) {
        line[read - 1] = 0;
        lines[line_count++] = strdup(line);
    }
    const struct lws_protocols protocols[] = {{"client", on_event, 0, 0, 0, NULL, 0}, {0}};
    const struct lws_extension extensions[] = {
        {"permessage-deflate", lws_extension_callback_pm_deflate, "permessage-deflate; client_no_context_takeover; client_max_window_bits"},
        {0},
    };
    struct lws_context_creation_info info = {0};
    info.port = CONTEXT_PORT_NO_LISTEN;
    info.protocols = protocols;
    info.extensions = extensions;
    lws_set_log_level(LLL_ERR, NULL);
    struct lws_context *context = lws_create_context(&info);
    struct lws_client_connect_info to = {0};
    to.context = context;
    to.address = to.host = "127.0.0.1";
    to.port = atoi(strrchr(args[1], ':') + 1);
    to.path = "/";
    to.local_protocol_name = "client";
    lws_client_connect_via_info(&to);
    while (!ended && lws_service(context, 0) >= 0) {
    }
    lws_context_destroy(context);
    return ended == 1 ? 0 : 1;
}
