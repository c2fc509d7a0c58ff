/*
 * Running a sequence: the first time step by step, which lets the libraries load what they need; the
 * second time into a CUDA graph; from then on the graph alone is launched.
 *
 * A graph holds addresses. It is thrown away when a binding of one of its programs has changed.
 * Everything else that changes from iteration to iteration is data in device memory, so a replay
 * computes what the steps would. Derived weights whose sources the sequence itself writes (a trained
 * extractor) are written by the update too, or refreshed inside the graph; the others (frozen ones) are before
 * it, when a version moved.
 */
#include "backend/cuda/cuda.h"

struct captured {
    cudaGraphExec_t exec; /* NULL until there is one */
    uint64_t epoch;       /* sum over the programs, at the first run */
    int n_runs;           /* since then */
    bool derives[];       /* [n_items] the program's derived weights change with every run */
};

static struct cuda_program *program_at(const struct sequence *sequence, int i)
{
    return (struct cuda_program *)sequence->items[i].program;
}

static void forget(struct captured *captured)
{
    if (captured->exec)
        (void)cudaGraphExecDestroy(captured->exec);
    captured->exec = NULL;
    captured->n_runs = 0;
}

void cuda_sequence_drop(struct backend *be, struct sequence *sequence)
{
    struct captured *captured = sequence->captured;
    if (!captured)
        return;
    (void)cudaSetDevice(((struct cuda_backend *)be)->device);
    forget(captured);
    mem_free(&be->ctx->mem, captured);
    sequence->captured = NULL;
}

/* ---- what changes within the sequence --------------------------------------------------------------- */

static bool writes(const struct cuda_program *p, const struct buffer *buffer)
{
    for (int v = 0; v < p->n_values; v++)
        if (p->values[v].slot.is_external && p->values[v].slot.written &&
            p->values[v].slot.span.buffer == buffer)
            return true;
    return false;
}

/* Whether some program of the sequence writes what this one's weights are derived from, and not both. */
static bool derives_anew(const struct sequence *sequence, const struct cuda_program *p)
{
    for (int i = 0; i < p->n_derived; i++)
        for (int k = 0; k < DERIVED_SOURCES; k++) {
            int source = p->derived[i].source[k];
            if (source == NO_VALUE || !p->values[source].slot.is_external)
                continue;
            for (int j = 0; j < sequence->n_items; j++)
                if (!(p->derived[i].kept && program_at(sequence, j) == p) &&
                    writes(program_at(sequence, j), p->values[source].slot.span.buffer))
                    return true;
        }
    return false;
}

/* Addresses of all programs; a capture that was made with other ones is dropped. */
static enum der_status prepare(struct sequence *sequence, struct captured **out)
{
    struct der_ctx *ctx = sequence->be->ctx;
    uint64_t epoch = 0;
    for (int i = 0; i < sequence->n_items; i++) {
        struct cuda_program *p = program_at(sequence, i);
        if (!p->resolved)
            TRY(cuda_resolve(p));
        epoch += p->epoch;
    }
    struct captured *captured = sequence->captured;
    if (!captured) {
        size_t n = (size_t)sequence->n_items;
        captured = mem_zalloc(&ctx->mem, 1, sizeof *captured + n * sizeof captured->derives[0]);
        if (!captured)
            return ctx_nomem(ctx);
        sequence->captured = captured;
    }
    if (captured->epoch != epoch)
        forget(captured);
    if (captured->n_runs == 0)
        for (int i = 0; i < sequence->n_items; i++)
            captured->derives[i] = derives_anew(sequence, program_at(sequence, i));
    captured->epoch = epoch;
    *out = captured;
    return DER_OK;
}

/* ---- launching -------------------------------------------------------------------------------------- */

/* Programs [first, end) of one group. */
struct group {
    int first, end;
};

static struct group group_at(const struct sequence *sequence, int first)
{
    struct group group = {first, first + 1};
    while (group.end < sequence->n_items &&
           sequence->items[group.end].group == sequence->items[first].group)
        group.end++;
    return group;
}

static bool uses(const struct cuda_program *p, const struct buffer *buffer)
{
    for (int v = 0; v < p->n_values; v++)
        if (p->values[v].slot.is_external && p->values[v].slot.span.buffer == buffer)
            return true;
    return false;
}

/* Whether a value of `p` lies in memory that the group writes, or that the group uses and `p` writes. */
static bool meets(const struct sequence *sequence, struct group group, const struct cuda_program *p,
                  int value)
{
    if (value == NO_VALUE)
        return false;
    const struct slot *slot = &p->values[p->values[value].owner].slot;
    if (!slot->is_external)
        return false;
    for (int i = group.first; i < group.end; i++) {
        const struct cuda_program *other = program_at(sequence, i);
        if (writes(other, slot->span.buffer) || (slot->written && uses(other, slot->span.buffer)))
            return true;
    }
    return false;
}

/* Steps at the start of `p` that have nothing to do with the group before it. */
static int independent_steps(const struct sequence *sequence, struct group group,
                             const struct cuda_program *p)
{
    int n = 0;
    for (int i = 0; i < p->n_derived; i++)
        for (int k = 0; k < DERIVED_SOURCES; k++)
            if (meets(sequence, group, p, p->derived[i].source[k]))
                return 0;
    for (bool met = false; n < p->n_steps; n++) {
        const struct node *node = &p->steps[n].node;
        for (int k = 0; k < node->n_in && !met; k++)
            met = meets(sequence, group, p, node->in[k]);
        for (int k = 0; k < node->n_out && !met; k++)
            met = meets(sequence, group, p, node->out[k]);
        if (met)
            break;
    }
    return n;
}

static enum der_status enqueue_program(struct sequence *sequence, const bool *derives, int i,
                                       cudaStream_t stream)
{
    struct cuda_program *p = program_at(sequence, i);
    if (derives[i])
        TRY(cuda_derived_refresh(p, stream));
    return cuda_enqueue(p, stream);
}

/* A program that has the device to itself. */
static enum der_status enqueue_alone(struct sequence *sequence, const bool *derives, int i)
{
    struct cuda_program *p = program_at(sequence, i);
    if (derives[i])
        TRY(cuda_derived_refresh(p, cuda_of(p)->stream));
    return cuda_enqueue_lanes(p, 0, p->n_steps);
}

/* The programs of a group side by side, and beside them the first steps of a program that follows it
 * alone: the trained extractor need not wait for the frozen ones until it meets their features. */
static enum der_status enqueue_beside(struct sequence *sequence, const bool *derives,
                                      struct group group, struct group next)
{
    struct cuda_backend *cuda = (struct cuda_backend *)sequence->be;
    struct der_ctx *ctx = cuda->base.ctx;
    static const char WHAT[] = "ordering streams";
    const int n_programs = group.end - group.first;
    const int n = n_programs < cuda->n_side ? n_programs : cuda->n_side;
    struct cuda_program *follower = NULL;
    int split = 0;
    TRY(cuda_check(ctx, cudaEventRecord(cuda->fork, cuda->stream), WHAT));
    for (int i = 0; i < n; i++)
        TRY(cuda_check(ctx, cudaStreamWaitEvent(cuda->side[i], cuda->fork, 0), WHAT));
    for (int i = 0; i < n_programs; i++)
        TRY(enqueue_program(sequence, derives, group.first + i, cuda->side[i % n]));
    if (next.end - next.first == 1) {
        follower = program_at(sequence, next.first);
        split = independent_steps(sequence, group, follower);
        if (split > 0 && derives[next.first])
            TRY(cuda_derived_refresh(follower, cuda->stream));
        TRY(cuda_enqueue_lanes(follower, 0, split));
    }
    for (int i = 0; i < n; i++) {
        TRY(cuda_check(ctx, cudaEventRecord(cuda->join[i], cuda->side[i]), WHAT));
        TRY(cuda_check(ctx, cudaStreamWaitEvent(cuda->stream, cuda->join[i], 0), WHAT));
    }
    if (!follower)
        return DER_OK;
    if (split == 0 && derives[next.first])
        TRY(cuda_derived_refresh(follower, cuda->stream));
    return cuda_enqueue_lanes(follower, split, follower->n_steps);
}

/* Whether a single program is worth a stream of its own: what follows could begin beside it. */
static bool has_company(const struct sequence *sequence, struct group group, struct group next)
{
    return next.end - next.first == 1 &&
           independent_steps(sequence, group, program_at(sequence, next.first)) > 0;
}

static enum der_status enqueue_all(struct sequence *sequence, const bool *derives)
{
    for (int first = 0; first < sequence->n_items;) {
        const struct group group = group_at(sequence, first);
        struct group next = {group.end, group.end};
        if (group.end < sequence->n_items)
            next = group_at(sequence, group.end);
        if (group.end - group.first == 1 && !has_company(sequence, group, next)) {
            TRY(enqueue_alone(sequence, derives, first));
            first = group.end;
            continue;
        }
        TRY(enqueue_beside(sequence, derives, group, next));
        first = next.end - next.first == 1 ? next.end : group.end;
    }
    return DER_OK;
}

/* Leaves captured->exec NULL when another thread of the process waited for the device meanwhile, as freeing memory
 * does: that spoils every capture under way, and the next run tries again. */
static enum der_status capture(struct sequence *sequence, struct captured *captured)
{
    struct cuda_backend *cuda = (struct cuda_backend *)sequence->be;
    struct der_ctx *ctx = cuda->base.ctx;
    cudaGraph_t graph = NULL;
    /* Relaxed: what other threads do with other contexts is their business. */
    TRY(cuda_check(ctx, cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeRelaxed),
                   "starting a capture"));
    enum der_status status = enqueue_all(sequence, captured->derives);
    cudaError_t error = cudaStreamEndCapture(cuda->stream, &graph);
    if (error == cudaErrorStreamCaptureInvalidated) {
        (void)cudaGetLastError();
        return DER_OK;
    }
    if (status == DER_OK)
        status = cuda_check(ctx, error, "capturing an iteration");
    if (status == DER_OK)
        status = cuda_check(ctx, cudaGraphInstantiate(&captured->exec, graph, 0),
                            "making a graph of an iteration");
    if (graph)
        (void)cudaGraphDestroy(graph);
    return status;
}

static void move_versions(const struct sequence *sequence, const bool *derives)
{
    for (int i = 0; i < sequence->n_items; i++) {
        struct cuda_program *p = program_at(sequence, i);
        for (int v = 0; v < p->n_values; v++)
            if (p->values[v].slot.is_external && p->values[v].slot.written)
                p->values[v].slot.span.buffer->version++;
    }
    /* What the updates have written is as new as its sources, since no other program of the sequence writes those. */
    for (int i = 0; i < sequence->n_items; i++)
        if (!derives[i])
            cuda_derived_note(program_at(sequence, i));
}

enum der_status cuda_run(struct backend *be, struct sequence *sequence)
{
    struct cuda_backend *cuda = (struct cuda_backend *)be;
    struct captured *captured = NULL;
    TRY(cuda_enter(cuda));
    TRY(prepare(sequence, &captured));
    for (int i = 0; i < sequence->n_items; i++) {
        struct cuda_program *p = program_at(sequence, i);
        if (!captured->derives[i] && cuda_derived_is_stale(p))
            TRY(cuda_derived_refresh(p, cuda->stream));
    }
    if (captured->n_runs > 0 && !captured->exec)
        TRY(capture(sequence, captured));
    if (captured->exec)
        TRY(cuda_check(be->ctx, cudaGraphLaunch(captured->exec, cuda->stream),
                       "launching an iteration"));
    else
        TRY(enqueue_all(sequence, captured->derives));
    captured->n_runs = 1;
    move_versions(sequence, captured->derives);
    return DER_OK;
}
