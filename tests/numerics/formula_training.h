// SPDX-License-Identifier: Apache-2.0

// Computes weights and samples by formulas that pytorch_models.py also has, so that PyTorch and our
// models can begin alike without exchanging files.
#pragma once

#include <cstdint>
#include <vector>

#include "common/params/layout.h"
#include "common/params/model_spec.h"
#include "worker/data/dataset.h"

namespace lodestar {

// Returns weights: element i of the parameter space is 0.03 sin(1.2345 i), plus 1 in tensors that
// start at one.
std::vector<float> FormulaWeights(const params::Layout& layout);

// Returns samples: input i is 7 i^2 + 13 i + 5, modulo the vocabulary or, for features, modulo 256
// and divided by 255. Target i is 3 i^2 + 11 i + 1 modulo the number of classes.
data::HostBatch FormulaBatch(const params::ModelSpec& spec, int64_t num_samples);

// A part of the parameter space in which weight decay applies everywhere or nowhere.
struct DecayRange {
  params::ElementRange range;
  bool decay = false;
};
// Returns as few such parts as possible, in order.
std::vector<DecayRange> DecayRanges(const params::Layout& layout);

}  // namespace lodestar
