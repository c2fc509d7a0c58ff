#include "support/run_program.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

const char EXCHANGE_PYTHON[] = DER_TESTS_DIR "/../build/deps/exchange/bin/python";

int run_program(const char *const *argv)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        (void)execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

bool python_has(const char *python, const char *modules)
{
    char code[512];
    (void)snprintf(code, sizeof code,
                   "import importlib.util as u, sys\n"
                   "sys.exit(not all(u.find_spec(m) for m in '%s'.split(', ')))",
                   modules);
    const char *const argv[] = {python, "-c", code, NULL};
    return access(python, X_OK) == 0 && run_program(argv) == 0;
}
