#include "support/test_backend.h"

#include "support/test_ctx.h"

#include <stdlib.h>
#include <string.h>

enum { BACKENDS_MAX = 8 };

const struct backend_ops *const *test_backends(void)
{
    static const struct backend_ops *list[BACKENDS_MAX + 1];
    const char *wanted = getenv("DER_TEST_BACKENDS");
    int n = 0;
    for (const struct backend_ops *const *ops = backend_list(); *ops && n < BACKENDS_MAX; ops++) {
        bool asked = wanted ? strcmp(wanted, (*ops)->name) == 0 : !(*ops)->is_usable;
        if (asked && backend_is_usable(*ops))
            list[n++] = *ops;
    }
    list[n] = NULL;
    if (n == 0) {
        print_message("back end '%s' cannot be used here\n", wanted ? wanted : "");
        skip();
    }
    return list;
}

const char *test_backend(void)
{
    const char *wanted = getenv("DER_TEST_BACKENDS");
    const struct backend_ops *const *ops = backend_list();
    while ((*ops)->is_usable) /* ref, the last, needs nothing special */
        ops++;
    return wanted ? wanted : (*ops)->name;
}

bool test_backend_is_here(void)
{
    for (const struct backend_ops *const *ops = backend_list(); *ops; ops++)
        if (strcmp((*ops)->name, test_backend()) == 0)
            return backend_is_usable(*ops);
    return false;
}

static void test_needs_its_back_end(void **state)
{
    (void)state;
    (void)test_backends();
}

int test_backend_skip(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_needs_its_back_end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
