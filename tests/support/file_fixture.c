#include "support/file_fixture.h"

int file_fixture_set_up(void **state)
{
    static struct file_fixture f;
    f = (struct file_fixture){.ctx = test_ctx_new(1)};
    scratch_init(&f.scratch);
    *state = &f;
    return 0;
}

int file_fixture_tear_down(void **state)
{
    struct file_fixture *f = *state;
    scratch_fini(&f->scratch);
    test_ctx_free(f->ctx);
    return 0;
}
