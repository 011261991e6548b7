// SPDX-License-Identifier: Apache-2.0

#include "server/optimizer/momentum_correction.h"

#include <algorithm>
#include <cmath>

#include "kernels/vectors/reduce.h"

namespace lodestar::optimizer {
namespace {

// A vector with a smaller norm than this counts as zero, and has no direction.
constexpr double kLeastLength = 1e-30;

}  // namespace

MomentumCorrection::Factors MomentumCorrection::FactorsOf(double length, double momentum_length,
                                                          double product) const {
  const double mean_length = (1.0 - config_.momentum) * momentum_length;
  if (length < kLeastLength || mean_length < kLeastLength) return {};
  if (mean_length < config_.least_momentum * length) return {};
  const double cosine = product / (length * momentum_length);
  // If the cosine is NaN, nothing is corrected. The bad numbers are found when the contribution is
  // applied.
  if (!(cosine < config_.keep_cosine || cosine < 0.0)) return {};
  const double confidence = length / (length + config_.kappa * mean_length);
  if (cosine < 0.0) {
    const double shrink = std::min(config_.shrink * -cosine * confidence, config_.max_shrink);
    return {.keep = 1.0, .add = -shrink * cosine * length / momentum_length};
  }
  const double turn = std::min(config_.turn * (1.0 - cosine) * confidence, 1.0);
  const double turned_length =
      std::sqrt((1.0 - turn) * (1.0 - turn) + turn * turn + 2.0 * turn * (1.0 - turn) * cosine);
  return {.keep = (1.0 - turn) / turned_length,
          .add = turn * length / (momentum_length * turned_length)};
}

std::vector<MomentumCorrection::Factors> MomentumCorrection::FactorsOf(
    absl::Span<const params::ElementRange> parts, const float* contribution, float scale,
    const float* momentum) const {
  std::vector<Factors> factors;
  factors.reserve(parts.size());
  for (const params::ElementRange& part : parts) {
    const float* const d = contribution + part.begin;
    const float* const m = momentum + part.begin;
    factors.push_back(
        FactorsOf(std::abs(double{scale}) * std::sqrt(vectors::SumOfSquares(d, part.size())),
                  std::sqrt(vectors::SumOfSquares(m, part.size())),
                  double{scale} * vectors::DotProduct(d, m, part.size())));
  }
  return factors;
}

}  // namespace lodestar::optimizer
