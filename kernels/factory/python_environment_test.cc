// SPDX-License-Identifier: Apache-2.0

#include "kernels/factory/python_environment.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace lodestar::factory {
namespace {

class PythonEnvironmentTest : public testing::Test {
 protected:
  // Makes an environment with nvidia/cudnn/lib/libcudnn.so.9. Returns its folder of programs.
  std::string Make(const std::string& name) {
    const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / name;
    const std::filesystem::path folder = root / "lib/python3.11/site-packages/nvidia/cudnn/lib";
    std::filesystem::create_directories(folder);
    std::filesystem::create_directories(root / "bin");
    std::ofstream(folder / "libcudnn.so.9") << "a library";
    return root / "bin";
  }
  static std::vector<std::string> FilesWith(const std::string& path) {
    setenv("PATH", path.c_str(), /*overwrite=*/1);
    return PythonPackageFiles("nvidia/cudnn/lib/libcudnn.so.9");
  }
};

TEST_F(PythonEnvironmentTest, FindsFilesInTheOrderOfThePath) {
  const std::string first = Make("first"), second = Make("second");
  const auto files = FilesWith("/bin:" + second + ":" + first);
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0], second + "/../lib/python3.11/site-packages/nvidia/cudnn/lib/libcudnn.so.9");
  EXPECT_EQ(files[1].rfind(first, 0), 0u) << files[1];
}

TEST_F(PythonEnvironmentTest, FollowsPythonsLinksStepByStep) {
  namespace fs = std::filesystem;
  const fs::path base = Make("base"), environment = Make("environment");
  const fs::path programs = fs::path(testing::TempDir()) / "programs/bin";
  fs::remove_all(programs);
  fs::create_directories(programs);
  for (const fs::path& folder : {base, environment}) fs::remove(folder / "python3");
  std::ofstream(base / "python3.11") << "a program";
  fs::create_symlink("python3.11", base / "python3");
  fs::create_symlink(base / "python3", environment / "python3");
  fs::create_symlink("../../environment/bin/python3", programs / "python3");
  const auto files = FilesWith(programs.string());
  ASSERT_EQ(files.size(), 2u);
  EXPECT_TRUE(fs::equivalent(
      files[0], environment / "../lib/python3.11/site-packages/nvidia" / "cudnn/lib/libcudnn.so.9"))
      << files[0];
  EXPECT_EQ(files[1].rfind(base.string(), 0), 0u) << files[1];
}

TEST_F(PythonEnvironmentTest, EndsWhereLinksLeadInACircle) {
  namespace fs = std::filesystem;
  const fs::path folder = Make("circle");
  fs::remove(folder / "python3");
  fs::create_symlink("python3", folder / "python3");
  EXPECT_EQ(FilesWith(folder.string()).size(), 1u);
}

// Relative folders must not be searched. Otherwise the owner of the working directory could choose
// the library.
TEST_F(PythonEnvironmentTest, LooksIntoNoRelativeFolder) {
  std::filesystem::current_path(Make("third"));
  EXPECT_TRUE(FilesWith(".:bin").empty());
  EXPECT_TRUE(FilesWith("").empty());
}

}  // namespace
}  // namespace lodestar::factory
