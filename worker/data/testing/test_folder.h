// SPDX-License-Identifier: Apache-2.0

// TestFolder is a folder of files for one test. It is removed at the end of the test.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace lodestar::data {

class TestFolder {
 public:
  TestFolder() {
    std::string pattern = absl::StrCat(::testing::TempDir(), "/data.XXXXXX");
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  ~TestFolder() { std::filesystem::remove_all(root_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& root() const { return root_; }
  std::string Path(absl::string_view name) const { return absl::StrCat(root_, "/", name); }

  // Writes a file and makes the folders that its path needs. Returns the path.
  std::string Write(absl::string_view name, absl::string_view content) const {
    const std::string path = Path(name);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  std::string WriteGzip(absl::string_view name, absl::string_view content) const {
    const std::string path = Path(name);
    gzFile file = gzopen(path.c_str(), "wb");
    EXPECT_EQ(gzwrite(file, content.data(), content.size()), static_cast<int>(content.size()));
    EXPECT_EQ(gzclose(file), Z_OK);
    return path;
  }

  void Link(absl::string_view target, absl::string_view name) const {
    std::filesystem::create_symlink(std::string(target), Path(name));
  }

 private:
  std::string root_;
};

// Returns the content of a file of little-endian uint16 tokens.
inline std::string TokenBytes(const std::vector<uint16_t>& tokens) {
  std::string bytes;
  for (uint16_t token : tokens) {
    bytes.push_back(static_cast<char>(token & 0xff));
    bytes.push_back(static_cast<char>(token >> 8));
  }
  return bytes;
}

inline std::string BigEndianBytes(const std::vector<uint32_t>& words) {
  std::string bytes;
  for (uint32_t word : words) {
    for (int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<char>(word >> shift));
  }
  return bytes;
}

}  // namespace lodestar::data
