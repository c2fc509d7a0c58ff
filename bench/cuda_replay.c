#include "cuda_replay.h"

#include "core/clock.h"

#include <stdio.h>

enum { ROUNDS = 5, REPLAYS = 4 };

bool replay_fine(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return true;
    (void)fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    return false;
}

static bool capture(replay_fn *launch, void *user, int n, cudaStream_t stream,
                    cudaGraphExec_t *exec)
{
    cudaGraph_t graph = NULL;
    bool fine =
        replay_fine(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "capturing");
    bool launched = fine;
    for (int i = 0; i < n && launched; i++)
        launched = launch(user, i, stream);
    fine = fine && replay_fine(cudaStreamEndCapture(stream, &graph), "ending a capture") &&
           launched && replay_fine(cudaGraphInstantiate(exec, graph, 0), "instantiating");
    if (graph)
        (void)cudaGraphDestroy(graph);
    return fine;
}

double replay_measure(replay_fn *launch, void *user, int n, cudaStream_t stream)
{
    cudaGraphExec_t exec = NULL;
    double best = -1.0;
    /* Outside a graph first: libraries load what they need. */
    if (!launch(user, 0, stream) || !replay_fine(cudaStreamSynchronize(stream), "running") ||
        !capture(launch, user, n, stream, &exec))
        return -1.0;
    for (int round = 0; round <= ROUNDS; round++) { /* the first warms up */
        (void)cudaStreamSynchronize(stream);
        double since = clock_seconds();
        for (int i = 0; i < REPLAYS; i++)
            (void)cudaGraphLaunch(exec, stream);
        if (!replay_fine(cudaStreamSynchronize(stream), "replaying"))
            return -1.0;
        double each = 1e6 * (clock_seconds() - since) / (REPLAYS * n);
        if (round > 0 && (best < 0.0 || each < best))
            best = each;
    }
    (void)cudaGraphExecDestroy(exec);
    return best;
}
