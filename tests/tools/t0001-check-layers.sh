#!/bin/bash
# check_layers.sh accepts a good tree and refuses one violation of each kind.
. "$(dirname "$0")/../support/test-lib.sh"

# A tree in which every rule is met, with words in comments and strings that look like breaches.
fresh_tree() {
    rm -rf tree
    mkdir -p tree/src/{core,graph,nn,api,backend/ref,backend/cpu} tree/{cli,examples} tree/include/der
    export DER_CHECK_ROOT=$PWD/tree
    echo '#include <stddef.h>' >tree/include/der/der.h
    printf '%s\n' '#include <der/der.h>' '#include <stdlib.h>' \
        'void f(void *p) { free(p); }' >tree/src/core/mem.c
    printf '%s\n' '/* printf("x") and malloc(3) are only' ' * spoken of: exit(1) */' \
        '#include "core/mem.h"' 'const char *s = "abort(1)"; // free(s)' \
        'void g(struct o *o) { o->free(o); mem_free(o); }' >tree/src/graph/graph.c
    printf '%s\n' '#include "backend/cpu/cpu.h"' '#include "der_build.h"' \
        'const char *n = "cpu";' >tree/src/graph/registry.c
    printf '%s\n' '#include "graph/graph.h"' '#include <oneapi/dnnl/dnnl.h>' '#include <omp.h>' \
        >tree/src/backend/cpu/cpu.c
    echo '#include "cli.h"' >tree/cli/main.c
    echo '#include <der/der.h>' >tree/examples/a.c
    echo '#include <der/der.h>' >tree/cli/cli.h
    printf '%s\n' '#include "support/close.h"' '#include <cmocka.h>' \
        'int main(void) { printf("x"); exit(1); }' >tree/src/nn/nn_test.c
}

refuses() { # NAME FILE LINE
    fresh_tree
    echo "$3" >>"tree/$2"
    check_fails "refuses $1" "$root/tools/check_layers.sh"
    check "and names the place" grep -q "^$2:[0-9]*: " out
}

fresh_tree
check "accepts a good tree" "$root/tools/check_layers.sh"

refuses "core that includes graph" src/core/mem.c '#include "graph/graph.h"'
refuses "graph that includes nn" src/graph/graph.c '#  include "nn/nn.h"'
refuses "nn that includes a back end" src/nn/nn.c '#include "backend/ref/ref.h"'
refuses "one back end that includes another" src/backend/cpu/cpu.c '#include "backend/ref/ref.h"'
refuses "a unit test that looks upwards" src/core/mem_test.c '#include "graph/graph.h"'
refuses "the program with an internal header" cli/main.c '#include "core/mem.h"'
refuses "an example with anything that is not installed" examples/a.c '#include "core/mem.h"'
refuses "numbers that follow the locale" src/graph/graph.c 'double d(void) { return strtod("1", NULL); }'
refuses "a public header with an internal one" include/der/der.h '#include "core/mem.h"'
refuses "library code that includes test code" src/nn/nn.c '#include "support/close.h"'
refuses "a dnnl header outside its room" src/nn/nn.c '#include <oneapi/dnnl/dnnl.h>'
refuses "an old dnnl header outside its room" src/backend/ref/ref.c '#include <dnnl.h>'
refuses "omp.h outside its room" src/backend/ref/ref.c '#include <omp.h>'
refuses "a CUDA header outside its room" src/backend/cpu/cpu.c '#include <cuda_runtime.h>'
refuses "zlib outside its room" src/nn/nn.c '#include <zlib.h>'
refuses "the build record outside api and registry" src/nn/nn.c '#include "der_build.h"'
refuses "a call of malloc" src/nn/nn.c 'void *p = malloc(3);'
refuses "a call of free" src/graph/graph.c 'void h(void *p) { free (p); }'
refuses "a call of strdup" src/nn/nn.c 'char *p = strdup(q);'
refuses "a call of printf" src/nn/nn.c 'void h(void) { printf("x"); }'
refuses "a call of fprintf" src/core/mem.c 'void h(void) { fprintf(stderr, "x"); }'
refuses "a call of exit" src/api/api.c 'void h(void) { exit(1); }'
refuses "a call of abort" src/api/api.c 'void h(void) { abort(); }'
refuses "a call of rand" src/nn/nn.c 'int r = rand();'
refuses "a back end named by nn" src/nn/nn.c 'const char *n = "cpu";'

fresh_tree
mkdir tree/src/attic
echo '#include "core/mem.h"' >tree/src/attic/old.c
check_fails "refuses a room it does not know" "$root/tools/check_layers.sh"
mkdir empty
DER_CHECK_ROOT=$PWD/empty check_fails "refuses to be content with nothing" "$root/tools/check_layers.sh"

done_testing
