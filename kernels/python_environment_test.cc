#include "kernels/python_environment.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace lodestar {
namespace {

class PythonEnvironmentTest : public testing::Test {
 protected:
  // An environment with nvidia/cudnn/lib/libcudnn.so.9. Returns its folder of programs.
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

// Whoever owns the working directory would choose the library.
TEST_F(PythonEnvironmentTest, LooksIntoNoRelativeFolder) {
  std::filesystem::current_path(Make("third"));
  EXPECT_TRUE(FilesWith(".:bin").empty());
  EXPECT_TRUE(FilesWith("").empty());
}

}  // namespace
}  // namespace lodestar
