// SPDX-License-Identifier: Apache-2.0

/* The C API of Lodestar's workers. A program computes, in any language and with any library. This
   library does everything else that gpu_worker does: certificates, registration, heartbeats,
   grants, exactly-once transfers with encodings, shared memory, reconnection, leaving.

   A program makes a worker, says what it is (lodestar_set), which tensors it trains
   (lodestar_add_tensor) and how much data it has (lodestar_set_data), allocates the two vectors,
   writes its initial weights to the first vector, and starts. It may also start first and then
   allocate the vectors, which then have the order of the job's tensors. After that it asks for
   steps until there are no more:

     lodestar_step step = {sizeof step};
     while (lodestar_next(worker, &step) == 0 && step.kind != LODESTAR_STEP_END) {
       // Compute with the weights in lodestar_parameters(), on the samples of the step.
       if (step.kind == LODESTAR_STEP_TRAIN) {
         // Write the gradient of the mean loss to lodestar_gradients(). If the job has local steps
         // (lodestar_job(worker, "has_local_steps") is "1"), instead make one step of your own
         // optimizer on lodestar_parameters().
       }
       lodestar_step_done(worker, loss_sum, num_correct, num_predictions);
     }

   All vectors are float (32 bits). They have all tensors one after the other, in the order in which
   they were added, or in the job's order; see lodestar_allocate(). If the servers run with
   --model=client, the first client brings layout and weights. Otherwise the servers have their own
   model, and the program must have its tensors. If lodestar_job(worker, "optimizer") is "reduce",
   the servers make no steps. Then lodestar_parameters() has the mean of the gradients of the last
   round if lodestar_weights_version() has grown by one, and an older mean otherwise. An evaluation
   asks for at most 256 samples at a time.

   Functions that return int return 0, or an error code of gRPC. After an error,
   lodestar_last_error() returns its text to the same thread. All functions check their worker. If
   it is null, they return INVALID_ARGUMENT. Functions without an error code then return the same as
   before lodestar_allocate(), lodestar_wait() returns 1, and lodestar_state() returns "". In a
   process that was forked after lodestar_start(), only the vectors may be read. All other
   functions, also the start of another worker, return FAILED_PRECONDITION. A worker must be used by
   one thread at a time, except that any thread may call lodestar_block_ready(), lodestar_state()
   and lodestar_stop(). */
#ifndef WORKER_CAPI_LODESTAR_WORKER_H_
#define WORKER_CAPI_LODESTAR_WORKER_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LODESTAR_API __attribute__((visibility("default")))

/* The minor version grows when a function is added. While the major version stays the same, no
   function is changed or removed. */
#define LODESTAR_API_MAJOR 1
#define LODESTAR_API_MINOR 1

LODESTAR_API int lodestar_api_major(void);
LODESTAR_API int lodestar_api_minor(void);
/* Returns a text such as "0.9.0 (commit ...)". */
LODESTAR_API const char* lodestar_version(void);
/* Return text and code of the last error in this thread. The text is valid until the next error in
   this thread. Never null. */
LODESTAR_API const char* lodestar_last_error(void);
LODESTAR_API int lodestar_last_code(void);
/* Sets the lowest level of lines in the log, which is written to stderr: "debug", "info", "warning"
   or "error". Must be called before the first worker is made. */
LODESTAR_API int lodestar_set_log_level(const char* level);
/* Since minor 1. Returns the CRC-32C of `size` bytes, for programs that check whether large memory
   has changed. If `size` is 0, the result is 0, and `data` may be null. */
LODESTAR_API uint32_t lodestar_crc32c(const void* data, size_t size);

typedef struct lodestar_worker lodestar_worker;

/* Makes a worker. Never returns null. */
LODESTAR_API lodestar_worker* lodestar_new(void);
/* Leaves the job, if lodestar_leave() was not called, and frees everything, including the vectors.
   Does nothing if `worker` is null, or in a process that was forked after lodestar_start(). */
LODESTAR_API void lodestar_free(lodestar_worker* worker);

/* Must be called before lodestar_start(), but data_order only before lodestar_set_data(). Settings
   have the names and meanings of gpu_worker's flags: coordinator, name, join, state_dir,
   keep_residuals ("local_steps"), tls_cert, tls_key, tls_ca, insecure ("0", "1"), shared_memory
   ("0", "1"), leave_timeout ("30s"), connect_timeout
   ("1h"; "0" means for ever), threads (for encoding; "1"). There are three more settings. device is
   a name, for messages, of what the program computes on. data_order (since minor 1) is "shuffled"
   or "sequential", the same in all programs with the same data: in each pass, the samples come in
   an order from the job's seed or in the order of their numbers. frozen_hash (since minor 1) is a
   text that identifies weights of the program that are not trained. A worker is refused with
   FAILED_PRECONDITION if another living worker has another frozen_hash. An empty frozen_hash is not
   compared. Errors: INVALID_ARGUMENT naming the setting. */
LODESTAR_API int lodestar_set(lodestar_worker* worker, const char* setting, const char* value);
/* Since minor 1. Must be called before lodestar_start(). Proposes a setting of the job. It is used
   if this is the first program of a new job and the operator of the servers has not set the flag.
   The settings are optimizer, momentum, beta1, beta2, epsilon, weight_decay, learning_rate,
   clip_norm and batch_size, with the values of these flags of ps_server. If the operator has set
   --optimizer, the servers also ignore proposals for the five settings after it. lr_schedule may be
   "program": then the learning rates of the programs' own optimizers are used. The servers ignore
   it in async, and if the operator has set a flag of the learning rate. They ignore clip_norm if
   programs make the steps: with local steps, and with --optimizer=reduce. lodestar_job() returns
   the resulting values. Errors: INVALID_ARGUMENT naming setting and value. */
LODESTAR_API int lodestar_propose(lodestar_worker* worker, const char* setting, const char* value);
/* Adds a tensor of `num_dimensions` sizes, each at least 1. Blocks are the units of transfer. Their
   numbers are 0, 1, 2, ... in the order in which forward uses them, and neighbouring tensors may
   have the same block. If `decays` is not 0, weight decay applies to the tensor. */
LODESTAR_API int lodestar_add_tensor(lodestar_worker* worker, const char* name,
                                     const int64_t* shape, int num_dimensions, int block,
                                     int decays);
/* Since minor 1. Does the same as lodestar_add_tensor() for a table of which a sample uses only few
   rows, such as an embedding. With --outer_reduction=direction, the servers take the mean direction
   of the workers' changes, but for this tensor the plain mean. --momentum_correction does not
   change this tensor. Only what the first program of a job says about this counts. */
LODESTAR_API int lodestar_add_embedding(lodestar_worker* worker, const char* name,
                                        const int64_t* shape, int num_dimensions, int block,
                                        int decays);
/* Since minor 1. Does the same as lodestar_add_tensor() for a tensor without a gradient, such as a
   running mean or variance. In every mode and in each step, the program writes the tensor's new
   values to lodestar_parameters(). With the next weights, it gets the mean of the values of all
   workers, weighted by their samples. Without rounds (async) it gets the values that the last
   worker has written. A block with such a tensor must have no other tensors. It is sent with
   lodestar_step_done(), and lodestar_block_ready() refuses it. */
LODESTAR_API int lodestar_add_averaged(lodestar_worker* worker, const char* name,
                                       const int64_t* shape, int num_dimensions, int block);
/* Must be called before lodestar_start(). Since minor 1 it may also be called once after
   lodestar_start(), before the program asks for the first step, so that the program can choose its
   data by lodestar_place(). Samples are numbers from 0 on. `fingerprint` has 16 hex digits, which
   are equal for workers with the same data. An empty fingerprint is not compared.
   `predictions_per_sample` is the number of tokens in a sequence, for the rate in the log, or 1. If
   `is_own` is not 0, only this worker has the data, as with --data_partition=own. */
LODESTAR_API int lodestar_set_data(lodestar_worker* worker, const char* fingerprint,
                                   int64_t num_train_samples, int64_t num_heldout_samples,
                                   int64_t predictions_per_sample, int is_own);

/* Allocates both vectors and fills them with zeros. Before lodestar_start(): ends the list of
   tensors. The layout of the job must be equal to it: names, shapes, order, blocks and marks. After
   lodestar_start(), which has ended the list: blocks until the job is known, and uses the job's
   order, blocks and marks. Names and shapes must be those of all tensors of the job, in any order.
   A name may have "transformer." in front of the job's name, as in Hugging Face's classes. A new
   job begins with the values that the program writes to the parameters before it first asks for a
   step, by lodestar_next() or by lodestar_wait() for it. Errors: INVALID_ARGUMENT naming the
   tensor; FAILED_PRECONDITION (if called a second time, or naming the first tensor that differs
   from the job's); the error that the worker has ended with. */
LODESTAR_API int lodestar_allocate(lodestar_worker* worker);
/* Return null or 0 before lodestar_allocate(). */
LODESTAR_API float* lodestar_parameters(lodestar_worker* worker);
LODESTAR_API float* lodestar_gradients(lodestar_worker* worker);
LODESTAR_API int64_t lodestar_num_elements(lodestar_worker* worker);
/* Returns the offset of a tensor, in elements. -1 means that there is no tensor of that name. */
LODESTAR_API int64_t lodestar_offset(lodestar_worker* worker, const char* name);
/* Since minor 1. Return the number of blocks, and the block of a tensor, as in
   lodestar_block_ready(). Before lodestar_allocate() they return 0 and -1. -1 also means that there
   is no tensor of that name. */
LODESTAR_API int64_t lodestar_num_blocks(lodestar_worker* worker);
LODESTAR_API int lodestar_block(lodestar_worker* worker, const char* name);

/* Starts a thread that connects and trains until the job is done. Errors: INVALID_ARGUMENT;
   FAILED_PRECONDITION (if something is missing). All other errors are returned by lodestar_next().
 */
LODESTAR_API int lodestar_start(lodestar_worker* worker);
/* Blocks until the worker has registered. Returns a setting of the job as a text: mode,
   has_local_steps ("0", "1"), local_steps, batch_size, global_batch_size, optimizer, learning_rate,
   momentum, beta1, beta2, epsilon, weight_decay, clip_norm, rounds, seed. Since minor 1 also:
   lr_schedule; model, which is its name; layout_is_own ("0", "1"), which is "1" if programs bring
   the model, as with --model=client; counts_weights ("0", "1"), which is "0" if
   lodestar_set_weight() has no effect; and rounds_done, which is the number of rounds that workers
   of this worker's name had contributed to when it registered. The text is valid until the next
   call of this thread. Null means that there is no such setting, or that the worker has ended
   before it registered. */
LODESTAR_API const char* lodestar_job(lodestar_worker* worker, const char* setting);

/* Since minor 1. Sets the place of this worker among the living workers of its job. `index` is the
   lowest number from 0 on that no other living worker had when this worker registered. The worker
   keeps the index until its life ends, even while servers restart. A new life gets a new index.
   `count` is the number of living workers. `is_first` is 1 if no living worker has a lower index,
   and 0 otherwise. `count` and `is_first` are as of the newest grant or heartbeat. In a job with
   sites, only the workers of one site count. Blocks until the worker has registered. Errors:
   UNIMPLEMENTED (if the servers are of an earlier release); FAILED_PRECONDITION (before
   lodestar_start()); INVALID_ARGUMENT (for a null pointer); the error that the worker has ended
   with. */
LODESTAR_API int lodestar_place(lodestar_worker* worker, int64_t* index, int64_t* count,
                                int* is_first);

/* Blocks until lodestar_next() would not block, if for_job is 0, or until lodestar_job() and
   lodestar_place() would not block, if for_job is 1. Blocks for at most this time, so that the
   program can do something else meanwhile. Returns 1 if they would not block, and 0 otherwise. */
LODESTAR_API int lodestar_wait(lodestar_worker* worker, int for_job, int milliseconds);

enum {
  LODESTAR_STEP_TRAIN = 1,
  LODESTAR_STEP_EVALUATE = 2, /* only the loss of held-out samples */
  LODESTAR_STEP_END = 3,      /* the job is done, or the worker was told to stop */
};

typedef struct lodestar_step {
  size_t size; /* sizeof(lodestar_step), set by the caller */
  int32_t kind;
  int32_t step; /* number in the round, from 0 to num_steps - 1 */
  int32_t num_steps;
  int64_t round;
  double learning_rate; /* from the job's schedule */
  uint64_t
      server_incarnation; /* changes when the servers have begun anew, perhaps with another job */
  /* Numbers of the samples, and the pass over the data (epoch) of each. The epoch of held-out
     samples is 0. Valid until the step is done. Any worker may get any sample, but within a pass
     only one worker gets it. */
  int64_t num_samples;
  const int64_t* samples;
  const int64_t* epochs;
  int64_t first_position; /* position of the first sample among all samples of the job */
} lodestar_step;

/* Blocks until there is a step to compute and all its weights have arrived. Errors: the error that
   the worker has ended with; FAILED_PRECONDITION (if the last step is not done). */
LODESTAR_API int lodestar_next(lodestar_worker* worker, lodestar_step* step);
/* Since minor 1. Sets `step` to the training step that comes `ahead` steps after the present one (1
   means the next step), for programs that load data ahead. learning_rate, server_incarnation and
   first_position are 0. Within the present round, this is certain. For later rounds it is a guess
   from the last two rounds, which is right as long as no worker joins or leaves. So compare with
   the samples of the step when it comes. If num_samples is 0, the step is not known, for example
   because there is no present step. The samples are valid until the next call of lodestar_expect()
   or lodestar_next(). Errors: INVALID_ARGUMENT (if `ahead` is below 1). */
LODESTAR_API int lodestar_expect(lodestar_worker* worker, int ahead, lodestar_step* step);
/* Since minor 1. Sets `pass` to the pass over the data, from 0 on, in which the round of the
   present training step began. It is the same for all workers of the round that have the same data,
   also if some of them have samples of the next pass. With local steps it is the pass of the step's
   first sample. Errors: FAILED_PRECONDITION (if there is no present training step). */
LODESTAR_API int lodestar_round_pass(lodestar_worker* worker, int64_t* pass);
/* Since minor 1. Gets more samples for the present training step, as many as it began with, for a
   program that takes several batches for one step of its optimizer. Sets `step` to the same step
   with the new samples, whose gradients the program adds to those of the earlier samples. The
   contribution has the same weight as without them. Blocks until the servers have answered. Errors:
   FAILED_PRECONDITION (if there is no present training step, or lodestar_block_ready() was called
   in it, or the servers are a site); INVALID_ARGUMENT (if the job has local steps, where the
   program calls lodestar_step_done() for each batch); UNIMPLEMENTED (if the servers are of an
   earlier release). Any other error, such as ABORTED, means that the round was lost for this
   worker. The step is then over, and the program drops its gradient and calls lodestar_next(). */
LODESTAR_API int lodestar_extend(lodestar_worker* worker, lodestar_step* step);
/* Since minor 1. From the next request for a step on, training steps have no samples: num_samples
   is 0. The program makes such a step with samples that it has, or gets samples by
   lodestar_extend(). For programs that make several steps with the same samples. Errors:
   INVALID_ARGUMENT (if the job has local steps). */
LODESTAR_API int lodestar_keep_samples(lodestar_worker* worker);
/* Since minor 1. Returns the number of updates that the weights of the last lodestar_next() have
   had. After the last step, returns the number of updates of the job's final weights. If the number
   is one more than before, the servers have made exactly one update. A round makes one update,
   unless it was lost with all its workers, or all workers have skipped it. -1 means that tensors
   have different numbers of updates, or that there are no weights yet. */
LODESTAR_API int64_t lodestar_weights_version(lodestar_worker* worker);
/* Since minor 1. Sets a vector of the state that the servers' optimizer begins a new job with. Like
   the initial parameters, the vector has an effect only if the job begins with this program.
   Vectors are numbered from 1 in the order of the optimizer: exp_avg and exp_avg_sq for "adamw",
   the momentum for "momentum" and "nesterov". They must be set in this order, after
   lodestar_allocate(), and while the program may write its initial parameters. `state` has
   lodestar_num_elements() elements, which are copied. `num_updates` is the number of updates that
   the state has had, for the bias correction of "adamw". The number of the last call counts, and is
   also the lodestar_weights_version() of the first weights. Errors: INVALID_ARGUMENT (wrong
   numbers); FAILED_PRECONDITION (too early or too late); RESOURCE_EXHAUSTED. lodestar_next()
   returns INVALID_ARGUMENT if the servers' optimizer has fewer vectors, and UNIMPLEMENTED if the
   servers are of an earlier release. */
LODESTAR_API int lodestar_set_initial_state(lodestar_worker* worker, int state_vector,
                                            const float* state, int64_t num_updates);
/* Since minor 1. Copies a vector of the state of the servers' optimizer to `state`, which has
   lodestar_num_elements() elements. Vectors are numbered as in lodestar_set_initial_state(). Blocks
   until the vector has arrived. Must be called while a step is not done, or after the last step if
   lodestar_keep_state() was called before. `updates` has lodestar_num_blocks() elements. They are
   set to the number of updates that the state of each block has had. `is_newer` is 0 if the state
   belongs to the weights of the last lodestar_next(). It is 1 if the servers have made further
   updates since. In sync they do so only if lodestar_block_ready() was called in the step, or if
   rounds do not wait for this worker. Errors: INVALID_ARGUMENT (the optimizer has no such vector);
   FAILED_PRECONDITION (no step is open, or the worker has kept no state); UNIMPLEMENTED (if the
   servers are of an earlier release); ABORTED, CANCELLED (the worker's incarnation has ended: call
   it again in the next step). */
LODESTAR_API int lodestar_pull_state(lodestar_worker* worker, int state_vector, float* state,
                                     int64_t* updates, int* is_newer);
/* Since minor 1. Makes the worker pull the first `num_vectors` vectors of the state with the last
   weights of the job, and keep them for lodestar_pull_state(). Must be called before the last step
   is done. 0 means that it keeps none, which is the default. Errors: FAILED_PRECONDITION (before
   lodestar_start()). */
LODESTAR_API int lodestar_keep_state(lodestar_worker* worker, int num_vectors);
/* Since minor 1. Sets the results of the job's last evaluation that the servers have reported, over
   all workers: the mean loss in nats per prediction, and the share of right predictions, which is
   NaN if it is not known. Returns the number of updates that the weights had had. -1 means that
   there was no evaluation. In that case both values do not change. Neither pointer may be null. */
LODESTAR_API int64_t lodestar_evaluation(lodestar_worker* worker, double* loss, double* accuracy);
/* Since minor 1. Sets the learning rate, 0 to 1e6, that the program's optimizer has for a block in
   the present training step. Block -1 means all blocks that have no rate of their own. Must be
   called before the first lodestar_block_ready() of the step. The rate has an effect only if the
   servers make the steps and lodestar_job(worker, "lr_schedule") is "program". The servers then
   make the step of the round with this rate, multiplied by the job's scale. A worker whose rate
   differs from the rate of another worker in the round is refused. A block without a rate takes the
   rate of the other workers or, if no worker has set one, the rate of the job. Errors:
   INVALID_ARGUMENT (another number or block); FAILED_PRECONDITION (no training step, or a block of
   the step is already ready). */
LODESTAR_API int lodestar_set_learning_rate(lodestar_worker* worker, int block,
                                            double learning_rate);
/* Since minor 1. Sets the weight, 0 to 2^40, of the present training step in the mean over the
   workers, in place of its number of samples. It is for losses that are means over something else
   than samples, such as targets that are not masked. Must be called before the first
   lodestar_block_ready() of the step. The weights of a round's local steps add up. Either all
   workers set a weight in each step, or none: another worker is refused. If all weights of a round
   are 0, it makes no update. The weight has no effect if lodestar_job(worker, "counts_weights") is
   "0": in async, or if contributions are deferred (--fragments, --overlap_steps, --overlap_rounds,
   --outer_optimizer=easgd). At a site, weights count among its workers, and the servers upstream
   count the site by its samples. Errors: INVALID_ARGUMENT (another number); FAILED_PRECONDITION (no
   training step, or a block of the step is already ready); UNIMPLEMENTED (if the servers are of an
   earlier release). */
LODESTAR_API int lodestar_set_weight(lodestar_worker* worker, int64_t weight);
/* May be called when the gradient of a block is complete, which may then be sent while other
   gradients are computed. All other blocks are sent when the step is done. */
LODESTAR_API int lodestar_block_ready(lodestar_worker* worker, int block);
/* Since minor 1. Stores a number of the present training step, in addition to the loss. The status
   and the log of metrics show the mean over the round's steps and over the workers that have logged
   it. If a name is logged twice in a step, the last value counts. Servers drop values that are not
   finite, and count them. Errors: INVALID_ARGUMENT (if the name is longer than 64 bytes or has
   other characters than letters, digits and ._-/, or if the round would have more than 32 names);
   FAILED_PRECONDITION (if there is no present training step). */
LODESTAR_API int lodestar_log(lodestar_worker* worker, const char* name, double value);
/* Ends the step. The arguments are sums over the step's predictions: of the losses in nats, of
   right predictions, and of predictions. If num_predictions is 0, the sums are not known. */
LODESTAR_API int lodestar_step_done(lodestar_worker* worker, double loss_sum, int64_t num_correct,
                                    int64_t num_predictions);
/* Since minor 1. Ends a training step instead of lodestar_step_done(), if its gradient is not
   finite, for example because scaled losses in half precision overflow. The round continues without
   this step: it has no weight in the mean, and its samples count as used. If all steps of a round
   are skipped, the round makes no update. Errors: FAILED_PRECONDITION (if lodestar_block_ready()
   was called in this step); INVALID_ARGUMENT (if the job has local steps: in that case the
   program's own optimizer leaves the step out, and the program calls lodestar_step_done() as
   usual). */
LODESTAR_API int lodestar_step_skipped(lodestar_worker* worker);
/* Must be called if the step cannot be computed. The worker leaves the job, and lodestar_next()
   returns the reason. */
LODESTAR_API int lodestar_step_failed(lodestar_worker* worker, const char* why);

/* Returns the worker's present activity: "wait", "pull", "compute", "push", and others. The text is
   valid until the next call of this thread. */
LODESTAR_API const char* lodestar_state(lodestar_worker* worker);
/* Does the same as SIGTERM for gpu_worker: there are steps until the present round is over. */
LODESTAR_API int lodestar_stop(lodestar_worker* worker);
/* Leaves at once, without the present step. Earlier local steps are handed in. Blocks until this is
   done. Errors: DEADLINE_EXCEEDED (if the servers have not accepted the last round). */
LODESTAR_API int lodestar_leave(lodestar_worker* worker);

#ifdef __cplusplus
}
#endif

#endif /* WORKER_CAPI_LODESTAR_WORKER_H_ */
