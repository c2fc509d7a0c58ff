#include "support/web_server.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* The child: its standard input and output are the pipes. */
static void become_server(const char *root, const int in[2], const int out[2])
{
    (void)dup2(in[0], STDIN_FILENO);
    (void)dup2(out[1], STDOUT_FILENO);
    (void)close(in[0]);
    (void)close(in[1]);
    (void)close(out[0]);
    (void)close(out[1]);
    (void)execlp("python3", "python3", DER_TESTS_DIR "/support/web_server.py", root, (char *)NULL);
    _exit(127);
}

/* The port is its first line; nothing comes from a child that could not start. */
static int read_port(int fd)
{
    int port = 0;
    FILE *file = fdopen(fd, "r");
    if (!file)
        return 0;
    if (fscanf(file, "%d", &port) != 1)
        port = 0;
    (void)fclose(file);
    return port;
}

bool web_server_start(struct web_server *server, const char *root)
{
    int in[2];
    int out[2];
    *server = (struct web_server){.input = -1};
    if (pipe(in) != 0)
        return false;
    if (pipe(out) != 0) {
        (void)close(in[0]);
        (void)close(in[1]);
        return false;
    }
    server->pid = fork();
    if (server->pid == 0)
        become_server(root, in, out);
    (void)close(in[0]);
    (void)close(out[1]);
    server->input = in[1];
    server->port = read_port(out[0]);
    if (server->port > 0)
        return true;
    web_server_stop(server);
    return false;
}

void web_server_stop(struct web_server *server)
{
    if (server->input >= 0)
        (void)close(server->input);
    server->input = -1;
    if (server->pid > 0)
        (void)waitpid(server->pid, NULL, 0);
    server->pid = 0;
}

const char *web_server_url(struct web_server *server, const char *path)
{
    (void)snprintf(server->url, sizeof server->url, "http://127.0.0.1:%d/%s", server->port, path);
    return server->url;
}
