// SPDX-License-Identifier: Apache-2.0

#include "worker/model/model_loader.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "common/params/model_spec_json.h"
#include "common/storage/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/factory/device_factory.h"
#include "worker/model/testing/synthetic_training.h"

namespace lodestar::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ModelLoaderTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    device_ = *factory::MakeDevice(GetParam(), /*threads=*/1, nullptr);
    layout_ = *params::BuildLayout(SmallGptSpec());
    values_ = RandomParameters(layout_, /*noise=*/0.1, /*seed=*/3);
    path_ = testing::TempDir() + "/model_" + GetParam() + ".safetensors";
  }

  // Writes the tensors of `layout`, with the first values of the small GPT.
  void Write(const params::Layout& layout, const storage::SafetensorsMetadata& metadata) {
    std::vector<storage::SafetensorsEntry> entries;
    for (const params::TensorSpec& tensor : layout.tensors())
      entries.push_back({tensor.name, tensor.shape});
    std::vector<float> floats(values_.begin(), values_.end());
    floats.resize(layout.num_elements());
    auto writer =
        *storage::SafetensorsWriter::Create(storage::FileSystem::Real(), path_, entries, metadata);
    ASSERT_TRUE(writer->Append(floats).ok());
    ASSERT_TRUE(writer->Finish(/*sync=*/false).ok());
  }

  absl::Status LoadStatus() { return LoadModel(path_, 1, device_.get()).status(); }

  const storage::SafetensorsMetadata metadata_ = {
      {params::kModelMetadataKey, params::ModelSpecToJson(SmallGptSpec())}};
  std::unique_ptr<kernels::Device> device_;
  params::Layout layout_;
  std::vector<double> values_;
  std::string path_;
};

TEST_P(ModelLoaderTest, LoadsSpecAndWeights) {
  Write(layout_, metadata_);
  const auto model = LoadModel(path_, 2, device_.get());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->layout().hash(), layout_.hash());
  EXPECT_EQ(ReadBuf(device_.get(), (*model)->parameters()), values_);
  EXPECT_NE((*model)->next_token_model(), nullptr);
}

TEST_P(ModelLoaderTest, NamesFileAndMissingMetadata) {
  Write(layout_, {});
  const absl::Status status = LoadStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path_), HasSubstr("lodestar.model")));
}

TEST_P(ModelLoaderTest, NamesATensorThatIsNotFinite) {
  const params::TensorSpec& tensor = layout_.tensors()[2];
  for (const double wrong : {std::nan(""), static_cast<double>(HUGE_VAL)}) {
    values_[tensor.offset + 3] = wrong;
    Write(layout_, metadata_);
    const absl::Status status = LoadStatus();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path_), HasSubstr(tensor.name)));
  }
}

TEST_P(ModelLoaderTest, NamesAMissingTensor) {
  std::vector<params::TensorSpec> tensors = layout_.tensors();
  tensors.pop_back();
  Write(*params::Layout::FromTensors(tensors), metadata_);
  const absl::Status status = LoadStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path_), HasSubstr("ln_f.bias")));
}

TEST_P(ModelLoaderTest, NamesATensorOfAnotherShape) {
  std::vector<params::TensorSpec> tensors = layout_.tensors();
  tensors[1].shape = {4, 32};
  Write(*params::Layout::FromTensors(tensors), metadata_);
  const absl::Status status = LoadStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("wpe"), HasSubstr("[4, 32]"), HasSubstr("[8, 32]")));
}

TEST_P(ModelLoaderTest, PassesOnThatThereIsNoFile) {
  path_ += ".missing";
  EXPECT_EQ(LoadStatus().code(), absl::StatusCode::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(Devices, ModelLoaderTest, testing::Values("cpu", "oracle"));

}  // namespace
}  // namespace lodestar::model
