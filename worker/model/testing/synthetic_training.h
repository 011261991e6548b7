// SPDX-License-Identifier: Apache-2.0

// Small models of every architecture, random batches and weights, and access to device memory, for
// tests.
#pragma once

#include <cstdint>
#include <vector>

#include "common/params/model_spec.h"
#include "kernels/device.h"
#include "worker/data/dataset.h"
#include "worker/model/model.h"

namespace lodestar::model {

// Returns one model per architecture, each with at least two layers of every kind.
std::vector<params::ModelSpec> SmallModelSpecs();
params::ModelSpec SmallGptSpec();
// Returns SmallGptSpec() with dropout.
params::ModelSpec SmallDroppingGptSpec();

// Returns a batch with features in 0..1, and tokens and targets over their whole range. The same
// seed gives the same batch.
data::HostBatch RandomBatch(const params::ModelSpec& spec, int64_t num_samples, uint64_t seed);
// Returns samples [begin, begin + count) of `batch`.
data::HostBatch SliceBatch(const data::HostBatch& batch, int64_t begin, int64_t count);

// Returns the layout's initial weights plus N(0, noise^2), rounded to f32. So devices of every
// dtype start with equal weights, and no gradient is zero by symmetry.
std::vector<double> RandomParameters(const params::Layout& layout, double noise, uint64_t seed);

// Copy between host doubles and a buffer of the compute dtype (f32 or f64).
void WriteBuf(kernels::Device* device, kernels::Buf to, const std::vector<double>& values);
std::vector<double> ReadBuf(kernels::Device* device, kernels::Buf from);

}  // namespace lodestar::model
