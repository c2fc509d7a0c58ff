#include "graph/op.h"

#include <assert.h>

const char *op_name(enum op op)
{
    static const char *const names[OP_COUNT] = {
#define OP_NAME(constant, name) [constant] = name,
        OP_LIST(OP_NAME)
#undef OP_NAME
    };
    assert(op >= 0 && op < OP_COUNT);
    return names[op];
}
