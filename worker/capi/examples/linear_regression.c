// SPDX-License-Identifier: Apache-2.0

// A worker in C: a linear regression on numbers of its own making, trained with as many others of
// its kind as there are.
//   ps_server --model=client --rounds=200
//   linear_regression --coordinator=HOST:PORT --name=NAME
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lodestar_worker.h"

enum {
  kNumFeatures = 3,
  kNumParameters = kNumFeatures + 1,  // weights, bias
  kNumTrainSamples = 1024,
  kNumHeldoutSamples = 128,
  kLossEveryRounds = 50,
};

// What the regression is to find.
static const float kTruth[kNumParameters] = {3.0f, -2.0f, 0.5f, 1.0f};

// A number from -1 to 1: the same in every program, so that any worker can take any sample.
static float feature_of(int64_t sample, int feature) {
  uint32_t bits = (uint32_t)(sample * kNumFeatures + feature + 1) * 2654435761u;
  bits = (bits ^ (bits >> 15)) * 2246822519u;
  bits ^= bits >> 13;
  return (float)(bits >> 8) / (float)(1 << 23) - 1.0f;
}

static float predict(const float* parameters, int64_t sample) {
  float sum = parameters[kNumFeatures];
  for (int k = 0; k < kNumFeatures; ++k) sum += parameters[k] * feature_of(sample, k);
  return sum;
}

// Sum of half the squared errors over the samples of the step. `gradient`, of their mean: null
// where nobody wants it. Held-out samples are those after the ones of training.
static double compute(const lodestar_step* step, const float* parameters, float* gradient) {
  const int64_t first = step->kind == LODESTAR_STEP_TRAIN ? 0 : kNumTrainSamples;
  double sums[kNumParameters] = {0};
  double loss = 0.0;
  for (int64_t i = 0; i < step->num_samples; ++i) {
    const int64_t sample = first + step->samples[i];
    const double error = predict(parameters, sample) - predict(kTruth, sample);
    for (int k = 0; k < kNumFeatures; ++k) sums[k] += error * feature_of(sample, k);
    sums[kNumFeatures] += error;
    loss += error * error / 2;
  }
  for (int k = 0; gradient != NULL && k < kNumParameters; ++k) {
    gradient[k] = (float)(sums[k] / (double)step->num_samples);
  }
  return loss;
}

// Until the job is done. 0, or the code of an error.
static int train(lodestar_worker* worker) {
  const char* const has_local_steps = lodestar_job(worker, "has_local_steps");
  // Without an answer the worker has ended, and lodestar_next() says how.
  const int steps_are_local = has_local_steps != NULL && strcmp(has_local_steps, "1") == 0;
  float* const parameters = lodestar_parameters(worker);
  float* const gradients = lodestar_gradients(worker);
  lodestar_step step = {.size = sizeof step};
  for (;;) {
    int code = lodestar_next(worker, &step);
    if (code != 0 || step.kind == LODESTAR_STEP_END) return code;
    const int is_training = step.kind == LODESTAR_STEP_TRAIN;
    const double loss = compute(&step, parameters, is_training ? gradients : NULL);
    if (is_training && steps_are_local) {
      // An optimizer of the program's own: servers average what many of these steps lead to.
      for (int k = 0; k < kNumParameters; ++k) {
        parameters[k] -= (float)step.learning_rate * gradients[k];
      }
    }
    if (is_training && step.step == 0 && step.round % kLossEveryRounds == 0) {
      printf("round %lld loss %.6f\n", (long long)step.round, loss / (double)step.num_samples);
      fflush(stdout);
    }
    code = lodestar_step_done(worker, loss, 0, step.num_samples);
    if (code != 0) return code;
  }
}

// What the job is to be like, as far as the operator of the servers does not say. 0, or the code of
// an error.
static int propose(lodestar_worker* worker) {
  static const char* const settings[][2] = {
      {"optimizer", "sgd"}, {"learning_rate", "0.5"}, {"batch_size", "16"}};
  int code = 0;
  for (size_t i = 0; code == 0 && i < sizeof settings / sizeof settings[0]; ++i) {
    code = lodestar_propose(worker, settings[i][0], settings[i][1]);
  }
  return code;
}

// Names the worker, its tensors, its data and its initial weights. 0, or the code of an error.
static int describe(lodestar_worker* worker, const char* coordinator, const char* name) {
  const int64_t weight_shape[] = {kNumFeatures};
  const int64_t bias_shape[] = {1};
  int code = 0;
  if (coordinator != NULL) code = lodestar_set(worker, "coordinator", coordinator);
  if (code == 0 && name != NULL) code = lodestar_set(worker, "name", name);
  if (code == 0) code = lodestar_add_tensor(worker, "weight", weight_shape, 1, 0, 0);
  if (code == 0) code = lodestar_add_tensor(worker, "bias", bias_shape, 1, 0, 0);
  if (code == 0) code = lodestar_set_data(worker, "", kNumTrainSamples, kNumHeldoutSamples, 1, 0);
  if (code == 0) code = lodestar_allocate(worker);
  if (code == 0) memset(lodestar_parameters(worker), 0, kNumParameters * sizeof(float));
  return code;
}

// The value of --FLAG=VALUE; null: the argument is another one.
static const char* value_of(const char* argument, const char* flag) {
  const size_t length = strlen(flag);
  return strncmp(argument, flag, length) == 0 ? argument + length : NULL;
}

int main(int argc, char** argv) {
  const char* coordinator = NULL;
  const char* name = NULL;
  for (int i = 1; i < argc; ++i) {
    const char* value = NULL;
    if (strcmp(argv[i], "--help") == 0) {
      printf("linear_regression [--coordinator=HOST:PORT] [--name=NAME]\n");
      return 0;
    } else if ((value = value_of(argv[i], "--coordinator=")) != NULL) {
      coordinator = value;
    } else if ((value = value_of(argv[i], "--name=")) != NULL) {
      name = value;
    } else {
      fprintf(stderr, "linear_regression: unknown argument %s; see --help\n", argv[i]);
      return 2;
    }
  }

  lodestar_worker* const worker = lodestar_new();
  int code = describe(worker, coordinator, name);
  if (code == 0) code = propose(worker);
  if (code == 0) code = lodestar_start(worker);
  if (code == 0) code = train(worker);
  if (code == 0) {
    const float* const parameters = lodestar_parameters(worker);
    printf("weights %.6f %.6f %.6f bias %.6f\n", parameters[0], parameters[1], parameters[2],
           parameters[kNumFeatures]);
  } else {
    fprintf(stderr, "linear_regression: error %d: %s\n", code, lodestar_last_error());
  }
  lodestar_free(worker);
  return code == 0 ? 0 : 1;
}
