// SPDX-License-Identifier: Apache-2.0

/* The C API of Lodestar's workers: a program computes, in whatever language and with whatever
   library, and this side does the rest of what gpu_worker does: certificates, registration,
   heartbeats, grants, exactly-once transfers with encodings, shared memory, reconnection, leaving.

   A program makes a worker, says what it is (lodestar_set), which tensors it trains
   (lodestar_add_tensor) and how much data it has (lodestar_set_data), allocates the two vectors,
   writes its initial weights into the first one, and starts; or starts first, and then allocates
   them as the job has its tensors. Then it asks for steps until there are no more:

     lodestar_step step = {sizeof step};
     while (lodestar_next(worker, &step) == 0 && step.kind != LODESTAR_STEP_END) {
       // lodestar_parameters() has the weights to compute with, on the samples of the step.
       if (step.kind == LODESTAR_STEP_TRAIN) {
         // write the gradient of the mean loss into lodestar_gradients(); or, where the job has
         // local steps (lodestar_job(worker, "has_local_steps") is "1"), make one step of an
         // optimizer on lodestar_parameters()
       }
       lodestar_step_done(worker, loss_sum, num_correct, num_predictions);
     }

   All vectors are float (32 bits), all tensors one after the other: in the order in which they were
   added, or in that of the job; see lodestar_allocate(). The servers run with --model=client: the
   first client brings layout and weights. Or they have a model of their own, whose tensors the
   program must have. Where lodestar_job(worker, "optimizer") is "reduce" the servers make no step:
   what lodestar_parameters() has then is the mean of the gradients of the round before, if
   lodestar_weights_version() has grown by one, and otherwise an older one. An
   evaluation asks for at most 256 samples at a time.

   Functions that return int return 0, or a code of an error (those of gRPC) and leave its text for
   lodestar_last_error() of the same thread. All functions of a worker check it: null is
   INVALID_ARGUMENT, and functions without a code then return what they do before
   lodestar_allocate(), lodestar_wait() 1 and lodestar_state() "". In a process that was forked
   after lodestar_start() its vectors may be read, all else is FAILED_PRECONDITION, and so is the
   start of another worker. A worker is used by one thread at a time, but for
   lodestar_block_ready(), lodestar_state() and lodestar_stop(), which any thread may call. */
#ifndef WORKER_CAPI_LODESTAR_WORKER_H_
#define WORKER_CAPI_LODESTAR_WORKER_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LODESTAR_API __attribute__((visibility("default")))

/* Grows when a function is added; none is ever changed or taken away within one number of
   lodestar_api_major(). */
#define LODESTAR_API_MAJOR 1
#define LODESTAR_API_MINOR 1

LODESTAR_API int lodestar_api_major(void);
LODESTAR_API int lodestar_api_minor(void);
/* "0.9.0 (commit ...)" */
LODESTAR_API const char* lodestar_version(void);
/* Text and code of the last function of this thread that failed; the text until its next one does.
   Never null. */
LODESTAR_API const char* lodestar_last_error(void);
LODESTAR_API int lodestar_last_code(void);
/* "debug", "info", "warning" or "error": from which level on the log, on stderr, has lines. Before
   the first worker is made. */
LODESTAR_API int lodestar_set_log_level(const char* level);
/* Since minor 1. CRC-32C of `size` bytes, for programs that compare large memory with what it was.
   Of no bytes it is 0, and `data` may then be null. */
LODESTAR_API uint32_t lodestar_crc32c(const void* data, size_t size);

typedef struct lodestar_worker lodestar_worker;

/* Never null. */
LODESTAR_API lodestar_worker* lodestar_new(void);
/* Leaves the job if that was not done, and frees everything, the vectors, too. Null: nothing. In a
   process that was forked after lodestar_start(): nothing. */
LODESTAR_API void lodestar_free(lodestar_worker* worker);

/* Before lodestar_start(). Settings are called as the flags of gpu_worker, and mean the same:
   coordinator, name, join, state_dir, keep_residuals ("local_steps"), tls_cert, tls_key, tls_ca,
   insecure ("0", "1"), shared_memory ("0", "1"), leave_timeout ("30s"), connect_timeout ("1h"; "0"
   means for ever), threads (of encoding; "1"). Beside these there are device, a name for people of
   what the program computes on; and, since minor 1, frozen_hash, a text that tells the weights
   apart that the program has and does not train. A worker is refused with FAILED_PRECONDITION if
   another living one has told another frozen_hash; an empty one is not compared. Errors:
   INVALID_ARGUMENT naming the setting. */
LODESTAR_API int lodestar_set(lodestar_worker* worker, const char* setting, const char* value);
/* Before lodestar_start(). A setting of the job that counts if this is the first program of a new
   job, and where the operator of the servers has not given the flag: optimizer, momentum, beta1,
   beta2, epsilon, weight_decay, learning_rate, clip_norm, batch_size, with values as those flags of
   ps_server. With --optimizer the operator decides the next five as well. What came of it
   lodestar_job() tells. Of API minor 1. Errors: INVALID_ARGUMENT naming setting and value. */
LODESTAR_API int lodestar_propose(lodestar_worker* worker, const char* setting, const char* value);
/* Appends a tensor of `num_dimensions` sizes, each at least 1. Blocks are the units of transfer: 0,
   1, 2, ... in the order in which forward uses them; neighbours may share one. `decays`: whether
   weight decay applies to it. */
LODESTAR_API int lodestar_add_tensor(lodestar_worker* worker, const char* name,
                                     const int64_t* shape, int num_dimensions, int block,
                                     int decays);
/* The same of a table of which a sample touches few rows, such as an embedding: where servers take
   the mean direction of what workers have changed (--outer_reduction=direction), the plain mean of
   this one, and --momentum_correction leaves it as it is. What the first program of a job says
   counts. Of API minor 1. */
LODESTAR_API int lodestar_add_embedding(lodestar_worker* worker, const char* name,
                                        const int64_t* shape, int num_dimensions, int block,
                                        int decays);
/* The same of a tensor that no gradient belongs to, such as a running mean or variance: in every
   mode the program leaves its new values in lodestar_parameters(), in each step, and what it finds
   there with the next weights is the mean of what all workers left, weighted by their samples.
   Without rounds (async) that is what the last worker left. Its block has no other tensors but
   such, is sent with lodestar_step_done(), and lodestar_block_ready() refuses it. Of API minor 1.
 */
LODESTAR_API int lodestar_add_averaged(lodestar_worker* worker, const char* name,
                                       const int64_t* shape, int num_dimensions, int block);
/* Before lodestar_start(). Since minor 1 also once after it, before the first step is asked for: so
   lodestar_place() can decide which data it is. Samples are numbers from 0 on. `fingerprint`: 16
   hex digits that are equal for workers that have the same data; empty means: not compared.
   `predictions_per_sample`: tokens of a sequence, for the rate in the log; else 1. `is_own`: the
   data is this worker's alone, as with
   --data_partition=own. */
LODESTAR_API int lodestar_set_data(lodestar_worker* worker, const char* fingerprint,
                                   int64_t num_train_samples, int64_t num_heldout_samples,
                                   int64_t predictions_per_sample, int is_own);

/* Makes both vectors, of zeros. Before lodestar_start() it ends the list of tensors, and the layout
   of the job must be equal to it: names, shapes, order, blocks and marks. After lodestar_start(),
   which has ended the list, it blocks until the job is known, and takes the job's order, blocks and
   marks: names and shapes must be those of the job, all of them, in any order; the name of a tensor
   may be that of the job behind "transformer.", as Hugging Face's classes have it. What is then
   written into the parameters, until the worker is first asked for a step (lodestar_next(), or
   lodestar_wait() for it), are the weights that a new job begins with. Errors: INVALID_ARGUMENT
   naming the tensor; FAILED_PRECONDITION a second time, or naming the first tensor that differs
   from the job's; what the worker has ended with. */
LODESTAR_API int lodestar_allocate(lodestar_worker* worker);
/* Null, 0 before lodestar_allocate(). */
LODESTAR_API float* lodestar_parameters(lodestar_worker* worker);
LODESTAR_API float* lodestar_gradients(lodestar_worker* worker);
LODESTAR_API int64_t lodestar_num_elements(lodestar_worker* worker);
/* Where a tensor begins, in elements; -1: there is none of that name. */
LODESTAR_API int64_t lodestar_offset(lodestar_worker* worker, const char* name);
/* Since minor 1. How many blocks there are, and in which a tensor is: those of
   lodestar_block_ready(). 0, -1: before lodestar_allocate(); -1: there is none of that name. */
LODESTAR_API int64_t lodestar_num_blocks(lodestar_worker* worker);
LODESTAR_API int lodestar_block(lodestar_worker* worker, const char* name);

/* Connects, on a thread of its own, and trains until the job is done. Errors: INVALID_ARGUMENT,
   FAILED_PRECONDITION if something is missing; all others come from lodestar_next(). */
LODESTAR_API int lodestar_start(lodestar_worker* worker);
/* A setting of the job, as text: mode, has_local_steps ("0", "1"), local_steps, batch_size,
   global_batch_size, optimizer, learning_rate, momentum, beta1, beta2, epsilon, weight_decay,
   clip_norm, rounds, seed; since minor 1 model, its name, and layout_is_own ("0", "1"): programs
   bring the model, as with --model=client. Blocks until the worker has registered; until the next
   call. Null: it will not any more, or there is no such setting. */
LODESTAR_API const char* lodestar_job(lodestar_worker* worker, const char* setting);

/* Since minor 1. Tells what this worker is among those of its job. `index` is the lowest number
   from 0 that no other living worker had when this one registered. The worker keeps it until its
   life ends, also while servers are started again; a new life gets a new one. `count` is how many
   workers live, and `is_first` is 1 if no living one has a lower index, else 0: both by the newest
   grant or heartbeat. In a job with sites, that is among the workers of one site. Blocks until the
   worker has registered. Errors: UNIMPLEMENTED if the servers are of an earlier release;
   FAILED_PRECONDITION before lodestar_start(); INVALID_ARGUMENT for a null pointer; what the worker
   has ended with. */
LODESTAR_API int lodestar_place(lodestar_worker* worker, int64_t* index, int64_t* count,
                                int* is_first);

/* Waits until lodestar_next() (for_job 0) or lodestar_job() and lodestar_place()
   (for_job 1) would not block, but for at
   most so long: for programs that look at something else meanwhile. 1: it would not; 0: not yet. */
LODESTAR_API int lodestar_wait(lodestar_worker* worker, int for_job, int milliseconds);

enum {
  LODESTAR_STEP_TRAIN = 1,
  LODESTAR_STEP_EVALUATE = 2, /* the loss alone, of held-out samples */
  LODESTAR_STEP_END = 3,      /* the job is done, or the worker was told to stop */
};

typedef struct lodestar_step {
  size_t size; /* sizeof(lodestar_step), set by the caller */
  int32_t kind;
  int32_t step; /* of the round, from 0 on, of num_steps */
  int32_t num_steps;
  int64_t round;
  double learning_rate; /* of the job's schedule */
  uint64_t
      server_incarnation; /* another one: the servers have begun anew, perhaps with another job */
  /* Which samples, and in which passes over the data (of held-out ones: 0); until the step is done.
     A sample may come with any worker, but within a pass with one only. */
  int64_t num_samples;
  const int64_t* samples;
  const int64_t* epochs;
  int64_t first_position; /* of the first one among all samples that the job has trained on */
} lodestar_step;

/* Blocks until there is something to compute, with all weights in place. Errors: what the worker
   has ended with; FAILED_PRECONDITION if the last step is not done. */
LODESTAR_API int lodestar_next(lodestar_worker* worker, lodestar_step* step);
/* Since minor 1. Which samples the step of training will be of that comes `ahead` steps after the
   one at hand (1: the next), for programs that load data ahead: round, step, num_steps, samples and
   epochs; all else is 0. For the steps of one round that is certain. Beyond, it is a guess by the
   last two rounds, which is right as long as nobody joins or leaves: look at the samples of the
   step when it comes. num_samples 0: it cannot be told, as without a step at hand. The samples live
   until the next call of lodestar_expect() or lodestar_next(). Errors: INVALID_ARGUMENT below 1. */
LODESTAR_API int lodestar_expect(lodestar_worker* worker, int ahead, lodestar_step* step);
/* How many updates the weights have had that lodestar_next() has come with, or, after the last
   step, those that the job has ended with. One more than before: the servers have taken exactly
   one, as each round brings but one that was lost with all its workers, or that all have skipped.
   -1: some tensors have had more than others, or there are no weights yet. (API minor 1) */
LODESTAR_API int64_t lodestar_weights_version(lodestar_worker* worker);
/* Since minor 1. Tells the last evaluation of the job that the servers have told of, over all
   workers: the mean loss in nats per prediction, and the share of right predictions, NaN if it is
   not known. Returns how many updates the weights had had. -1 means that there was no evaluation,
   and leaves both as they were. Neither pointer may be null. */
LODESTAR_API int64_t lodestar_evaluation(lodestar_worker* worker, double* loss, double* accuracy);
/* The gradient of a block is there, and may be sent while the others are computed. Blocks that are
   not told of are sent when the step is done. */
LODESTAR_API int lodestar_block_ready(lodestar_worker* worker, int block);
/* Since minor 1. A number of the step of training at hand, beside its loss: the status, the log of
   metrics and whoever reads them have the mean over the round's steps and over the workers that
   told it. The last value of a name in a step counts; one that is not finite is dropped by the
   servers, which count such. Errors: INVALID_ARGUMENT for a name that is not of letters, digits and
   ._-/, of at most 64 bytes, and beyond 32 names in a round; FAILED_PRECONDITION without such a
   step. */
LODESTAR_API int lodestar_log(lodestar_worker* worker, const char* name, double value);
/* Sums over the step's predictions: losses in nats, and how many were right. num_predictions 0: not
   known. */
LODESTAR_API int lodestar_step_done(lodestar_worker* worker, double loss_sum, int64_t num_correct,
                                    int64_t num_predictions);
/* Since minor 1. Instead of lodestar_step_done(), of a step of training: its gradient is not
   finite, say by the overflow that scaled losses in half precision bring about. The round goes on
   without it: it has no weight in the mean, and a round of such alone makes no update; its samples
   count as used. Errors: FAILED_PRECONDITION after a block was told of; INVALID_ARGUMENT where the
   job has local steps: there the program's own optimizer leaves the step out, and it is done as any
   other. */
LODESTAR_API int lodestar_step_skipped(lodestar_worker* worker);
/* The step cannot be computed: the worker leaves the job, and lodestar_next() says why. */
LODESTAR_API int lodestar_step_failed(lodestar_worker* worker, const char* why);

/* "wait", "pull", "compute", "push", ...: what the worker does now. Until the thread's next call.
 */
LODESTAR_API const char* lodestar_state(lodestar_worker* worker);
/* As SIGTERM does with gpu_worker: steps come until the round at hand is over. */
LODESTAR_API int lodestar_stop(lodestar_worker* worker);
/* Leaves at once, without the step at hand; local steps before it are handed in. Blocks until that
   is done. Errors: DEADLINE_EXCEEDED: the servers have not taken the last round. */
LODESTAR_API int lodestar_leave(lodestar_worker* worker);

#ifdef __cplusplus
}
#endif

#endif /* WORKER_CAPI_LODESTAR_WORKER_H_ */
