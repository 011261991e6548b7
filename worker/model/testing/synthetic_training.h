// Small models of every architecture, random batches and weights, and plain access to device
// memory.
#pragma once

#include <cstdint>
#include <vector>

#include "common/params/model_spec.h"
#include "kernels/device.h"
#include "worker/data/dataset.h"
#include "worker/model/model.h"

namespace lodestar::model {

// One per architecture, each with at least two layers of every kind.
std::vector<ModelSpec> SmallModelSpecs();
ModelSpec SmallGptSpec();
// The same with dropout.
ModelSpec SmallDroppingGptSpec();

// Features in 0..1, tokens and targets over the whole range. The same seed gives the same batch.
data::HostBatch RandomBatch(const ModelSpec& spec, int64_t num_samples, uint64_t seed);
// Samples [begin, begin + count) of `batch`.
data::HostBatch SliceBatch(const data::HostBatch& batch, int64_t begin, int64_t count);

// The layout's initialisers plus N(0, noise^2) everywhere, rounded to f32, so that devices of every
// dtype start equal and no gradient is zero by symmetry.
std::vector<double> RandomParameters(const Layout& layout, double noise, uint64_t seed);

// Between host doubles and a buffer of the compute dtype (f32 or f64).
void WriteBuf(kernels::Device* device, kernels::Buf to, const std::vector<double>& values);
std::vector<double> ReadBuf(kernels::Device* device, kernels::Buf from);

}  // namespace lodestar::model
