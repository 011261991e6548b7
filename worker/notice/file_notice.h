// SPDX-License-Identifier: Apache-2.0

// FileNotice gives notice when a file appears. The folder of the file must exist. The content of
// the file does not matter.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/storage/file_system.h"
#include "worker/notice/notice_source.h"

namespace lodestar::notice {

class FileNotice final : public NoticeSource {
 public:
  // `files` must outlive the object.
  FileNotice(std::string path, storage::FileSystem* files)
      : path_(std::move(path)), files_(files) {}

  absl::StatusOr<std::optional<std::string>> Look() override {
    if (files_->Exists(path_)) return absl::StrCat("notice: ", path_, " exists");
    const std::string folder = std::filesystem::path(path_).parent_path();
    if (folder.empty() || files_->IsDirectory(folder)) return std::nullopt;
    return absl::NotFoundError(
        absl::StrCat("the folder ", folder, " of ", path_, " does not exist"));
  }

 private:
  const std::string path_;
  storage::FileSystem* const files_;
};

}  // namespace lodestar::notice
