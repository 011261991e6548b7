// SPDX-License-Identifier: Apache-2.0

// Makes the devices of the model tests: CUDA runs on a real card.
#include "absl/strings/str_cat.h"
#include "common/runtime/check.h"
#include "kernels/factory/cuda_plugin.h"
#include "kernels/factory/device_factory.h"
#include "worker/model/testing/test_devices.h"

namespace lodestar::model {

std::unique_ptr<kernels::Device> MakeTestDevice(const std::string& name, int threads) {
  factory::DeviceOptions options{.kind = name, .threads = threads};
  if (const std::optional<CudaTestDevice> cuda = CudaTestDeviceOf(name); cuda.has_value()) {
    options = {.kind = "cuda", .compute = cuda->compute, .fusion = cuda->fusion};
  }
  auto device = factory::MakeDevice(options, /*why_not_cuda=*/nullptr);
  LODESTAR_CHECK(device.ok()) << device.status().ToString();
  return *std::move(device);
}

// Uses NCCL if the machine has `count` cards. Otherwise one card stands for several members, and
// vectors are copied, because NCCL takes each card only once.
kernels::DeviceSet MakeTestCards(int count) {
  const auto num_cards = factory::CountCudaDevices();
  LODESTAR_CHECK(num_cards.ok()) << num_cards.status().ToString();
  kernels::DeviceSet cards;
  std::vector<kernels::Device*> members;
  for (int i = 0; i < count; ++i) {
    auto card = factory::MakeDevice(
        {.kind = absl::StrCat("cuda:", i % *num_cards), .fusion = factory::FusionPolicy::kNever},
        /*why_not_cuda=*/nullptr);
    LODESTAR_CHECK(card.ok()) << card.status().ToString();
    members.push_back(cards.devices.emplace_back(*std::move(card)).get());
  }
  auto group = cards.first().MakeGroup(members);
  LODESTAR_CHECK(group.ok()) << group.status().ToString();
  cards.group = *std::move(group);
  return cards;
}

// Returns GPT-2 124M and 1.5B with few layers, because more layers only repeat them, and a model
// with heads of 128 and twice the context.
std::vector<params::ModelSpec> SpecsOfTestCards() {
  const params::GptSpec small{
      .num_layers = 2, .num_heads = 12, .width = 768, .context = 1024, .vocabulary = 50257};
  const params::GptSpec large{
      .num_layers = 1, .num_heads = 25, .width = 1600, .context = 256, .vocabulary = 50257};
  const params::GptSpec wide_heads{
      .num_layers = 1, .num_heads = 6, .width = 768, .context = 2048, .vocabulary = 512};
  return {{"gpt2-124m", small}, {"gpt2-1.5b", large}, {"wide-heads", wide_heads}};
}

}  // namespace lodestar::model
