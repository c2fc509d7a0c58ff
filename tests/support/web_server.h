/*
 * The badly behaved web server of tests/support/web_server.py, as a child process.
 */
#ifndef SUPPORT_WEB_SERVER_H
#define SUPPORT_WEB_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

enum { WEB_URL_MAX = 512 };

struct web_server {
    pid_t pid;
    int input; /* the server ends when this is closed, by us or by our death */
    int port;
    char url[WEB_URL_MAX]; /* the latest answer of web_server_url */
};

/* Serves the files of a folder. False when there is no python3. */
bool web_server_start(struct web_server *server, const char *root);
void web_server_stop(struct web_server *server);

/* "http://127.0.0.1:PORT/path"; good until the next call. */
const char *web_server_url(struct web_server *server, const char *path);

#endif
