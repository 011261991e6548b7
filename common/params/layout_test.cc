// SPDX-License-Identifier: Apache-2.0

#include "common/params/layout.h"

#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"

namespace lodestar::params {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TensorSpec MakeTensor(std::string name, std::vector<int64_t> shape, int block = 0) {
  TensorSpec tensor;
  tensor.name = std::move(name);
  tensor.shape = std::move(shape);
  tensor.block = block;
  return tensor;
}

std::vector<TensorSpec> TwoTensors() {
  return {MakeTensor("a", {2, 3}, 0), MakeTensor("b", {5}, 1)};
}

std::string HashOf(std::vector<TensorSpec> tensors) {
  return Layout::FromTensors(std::move(tensors))->hash();
}

TEST(LayoutTest, LaysTensorsEndToEnd) {
  ASSERT_OK_AND_ASSIGN(const Layout layout,
                       Layout::FromTensors({MakeTensor("a", {2, 3}), MakeTensor("scalar", {}),
                                            MakeTensor("c", {4}, 1)}));
  EXPECT_EQ(layout.num_elements(), 11);
  EXPECT_EQ(layout.tensors()[1].offset, 6);
  EXPECT_EQ(layout.tensors()[2].offset, 7);
  EXPECT_EQ(layout.num_blocks(), 2);
  EXPECT_EQ(layout.block(0), (ElementRange{0, 7}));
  EXPECT_EQ(layout.block(1), (ElementRange{7, 11}));
  ASSERT_NE(layout.Find("c"), nullptr);
  EXPECT_EQ(layout.Find("c")->num_elements(), 4);
  EXPECT_EQ(layout.Find("d"), nullptr);
  for (const TensorSpec& tensor : layout.tensors()) {
    EXPECT_EQ(&layout.TensorAt(tensor.offset), &tensor);
    EXPECT_EQ(&layout.TensorAt(tensor.offset + tensor.num_elements() - 1), &tensor);
  }
}

TEST(LayoutTest, BlocksAreAveragedAsAWhole) {
  std::vector<TensorSpec> tensors = {MakeTensor("a", {2}, 0), MakeTensor("mean", {3}, 1),
                                     MakeTensor("count", {}, 1), MakeTensor("b", {5}, 2),
                                     MakeTensor("c", {7}, 3)};
  EXPECT_FALSE(Layout::FromTensors(tensors)->has_averaged());
  EXPECT_EQ(Layout::FromTensors(tensors)->TrainedRanges(), (std::vector<ElementRange>{{0, 18}}));
  tensors[1].averaged = true;
  EXPECT_THAT(Layout::FromTensors(tensors),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'count' is not averaged, but other tensors of block 1 are")));
  tensors[2].averaged = true;
  ASSERT_OK_AND_ASSIGN(const Layout layout, Layout::FromTensors(tensors));
  EXPECT_TRUE(layout.has_averaged());
  EXPECT_FALSE(layout.is_averaged(0));
  EXPECT_TRUE(layout.is_averaged(1));
  EXPECT_FALSE(layout.is_averaged(3));
  EXPECT_EQ(layout.TrainedRanges(), (std::vector<ElementRange>{{0, 2}, {6, 18}}));
  tensors[1].decay = true;
  EXPECT_THAT(Layout::FromTensors(tensors),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'mean' is averaged and has weight decay")));
}

TEST(LayoutTest, PartsOfTensorsAreCutByTheRangeAndLeaveEmbeddingsOut) {
  std::vector<TensorSpec> tensors = {MakeTensor("a", {4}, 0), MakeTensor("table", {2, 3}, 0),
                                     MakeTensor("b", {5}, 0), MakeTensor("c", {1}, 1)};
  using Ranges = std::vector<ElementRange>;
  EXPECT_EQ(Layout::FromTensors(tensors)->TensorParts({0, 16}),
            (Ranges{{0, 4}, {4, 10}, {10, 15}, {15, 16}}));
  tensors[1].embedding = true;
  ASSERT_OK_AND_ASSIGN(const Layout layout, Layout::FromTensors(tensors));
  EXPECT_EQ(layout.TensorParts({0, 16}), (Ranges{{0, 4}, {10, 15}, {15, 16}}));
  EXPECT_EQ(layout.TensorParts({3, 12}), (Ranges{{0, 1}, {7, 9}}));
  EXPECT_EQ(layout.TensorParts({11, 13}), (Ranges{{0, 2}}));
  EXPECT_EQ(layout.TensorParts({5, 9}), Ranges());
  ASSERT_OK_AND_ASSIGN(const ModelSpec gpt, ModelPreset("gpt-nano"));
  ASSERT_OK_AND_ASSIGN(const Layout of_gpt, BuildLayout(gpt));
  EXPECT_TRUE(of_gpt.Find("wte.weight")->embedding);
  EXPECT_TRUE(of_gpt.Find("wpe.weight")->embedding);
  EXPECT_FALSE(of_gpt.Find("h.0.mlp.c_fc.weight")->embedding);
}

TEST(LayoutTest, HashesAreThoseOfEarlierReleases) {
  std::vector<TensorSpec> tensors = TwoTensors();
  tensors[0].decay = true;
  EXPECT_EQ(HashOf(tensors), "03650aaabe8920af");
}

TEST(LayoutTest, CopiesFindTheirOwnTensors) {
  auto original = std::make_unique<Layout>(*Layout::FromTensors(TwoTensors()));
  const Layout copy = *original;
  original.reset();
  EXPECT_EQ(copy.Find("b"), &copy.tensors()[1]);
}

TEST(LayoutTest, RefusesWhatIsNoLayout) {
  const auto error_of = [](std::vector<TensorSpec> tensors) {
    const absl::Status status = Layout::FromTensors(std::move(tensors)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(error_of({}), HasSubstr("no tensors"));
  EXPECT_THAT(error_of({MakeTensor("", {1})}), HasSubstr("tensor 0 has no name"));
  EXPECT_THAT(error_of({MakeTensor("a\nb", {1})}), HasSubstr("a\\nb"));
  EXPECT_THAT(error_of({MakeTensor(std::string(513, 'x'), {1})}), HasSubstr("513 bytes"));
  EXPECT_THAT(error_of({MakeTensor("a", {1}), MakeTensor("a", {1})}),
              HasSubstr("have the name 'a'"));
  EXPECT_THAT(error_of({MakeTensor("a", {3, 0})}), HasSubstr("[3,0]"));
  EXPECT_THAT(error_of({MakeTensor("a", {-1})}), HasSubstr("[-1]"));
  EXPECT_THAT(error_of({MakeTensor("a", std::vector<int64_t>(9, 1))}), HasSubstr("9 dimensions"));
  EXPECT_THAT(error_of({MakeTensor("a", {1}, 1)}), HasSubstr("block 1, expected 0"));
  EXPECT_THAT(error_of({MakeTensor("a", {1}, -1)}), HasSubstr("block -1, expected 0"));
  EXPECT_THAT(error_of({MakeTensor("a", {1}, 0), MakeTensor("b", {1}, 2)}),
              HasSubstr("block 2, expected 0 or 1"));
  EXPECT_THAT(error_of({MakeTensor("a", {1}, 0), MakeTensor("b", {1}, 1), MakeTensor("c", {1}, 0)}),
              HasSubstr("block 0, expected 1 or 2"));
}

TEST(LayoutTest, RefusesProductsAndSumsThatOverflow) {
  const int64_t huge = int64_t{1} << 62;
  EXPECT_THAT(Layout::FromTensors({MakeTensor("a", {huge, huge, huge})}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'a'")));
  EXPECT_OK(Layout::FromTensors({MakeTensor("a", {Layout::kMaxElements})}));
  EXPECT_THAT(Layout::FromTensors({MakeTensor("a", {Layout::kMaxElements}), MakeTensor("b", {1})}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'b'")));
}

TEST(LayoutTest, HashChangesWithEveryFieldButTheInitializerAndTheMarkOfEmbeddings) {
  std::set<std::string> hashes = {HashOf(TwoTensors())};
  const auto add_changed = [&](auto change) {
    std::vector<TensorSpec> tensors = TwoTensors();
    change(tensors);
    EXPECT_TRUE(hashes.insert(HashOf(std::move(tensors))).second);
  };
  add_changed([](auto& t) { t[0].name = "A"; });
  add_changed([](auto& t) { t[0].shape = {3, 2}; });
  add_changed([](auto& t) { t[0].shape = {6}; });
  add_changed([](auto& t) { t[1].shape = {6}; });
  add_changed([](auto& t) { t[1].block = 0; });
  add_changed([](auto& t) { t[1].decay = true; });
  add_changed([](auto& t) { t[1].averaged = true; });
  add_changed([](auto& t) { t.pop_back(); });
  add_changed([](auto& t) { t.push_back(MakeTensor("c", {1}, 1)); });

  std::vector<TensorSpec> tensors = TwoTensors();
  tensors[0].initializer = {InitializerKind::kNormal, 0.02f};
  tensors[1].embedding = true;
  EXPECT_EQ(HashOf(std::move(tensors)), HashOf(TwoTensors()));
  EXPECT_EQ(HashOf(TwoTensors()).size(), 16);
}

TEST(LayoutTest, CheckSameLayoutNamesTheFirstDifference) {
  ASSERT_OK_AND_ASSIGN(const Layout a, Layout::FromTensors(TwoTensors()));
  EXPECT_OK(CheckSameLayout(a, "server", a, "worker"));

  std::vector<TensorSpec> changed = TwoTensors();
  changed[1].shape = {7};
  ASSERT_OK_AND_ASSIGN(const Layout b, Layout::FromTensors(changed));
  EXPECT_THAT(
      CheckSameLayout(a, "server", b, "worker"),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr(absl::StrCat("server has the layout with hash ", a.hash())),
                     HasSubstr(absl::StrCat("worker has the one with hash ", b.hash())),
                     HasSubstr("tensor 1: server has 'b' [5]"), HasSubstr("worker has 'b' [7]"))));

  changed = TwoTensors();
  changed.pop_back();
  ASSERT_OK_AND_ASSIGN(const Layout c, Layout::FromTensors(changed));
  EXPECT_THAT(CheckSameLayout(a, "server", c, "worker"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("server has 2 tensors and worker has 1;")));
}

}  // namespace
}  // namespace lodestar::params
