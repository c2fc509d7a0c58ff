/*
 * Other programs that a test asks.
 */
#ifndef SUPPORT_RUN_PROGRAM_H
#define SUPPORT_RUN_PROGRAM_H

#include <stdbool.h>

/* Runs argv[0] with argv, which ends with NULL; its exit status, or -1. */
int run_program(const char *const *argv);

/* The Python of tools/fetch_exchange.sh, which has onnx, onnxruntime, tensorboard and safetensors. */
extern const char EXCHANGE_PYTHON[];

/* Can that Python import all of these modules ("onnx, torch")? */
bool python_has(const char *python, const char *modules);

#endif
