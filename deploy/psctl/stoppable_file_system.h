// A disk on which files that are read or written stop in the middle once the operator wants it.
#pragma once

#include <stop_token>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/storage/forwarding_file_system.h"

namespace lodestar {

// As thread-safe as the disk.
class StoppableFileSystem final : public ForwardingFileSystem {
 public:
  // `disk` outlives the object.
  StoppableFileSystem(FileSystem* disk, std::stop_token stop)
      : ForwardingFileSystem(disk), stop_(std::move(stop)) {}

  // Errors also: Cancelled once a stop was requested. All other calls go on, so that what was
  // written can be removed.
  absl::Status Read(const std::string& path,
                    absl::FunctionRef<absl::Status(absl::string_view block)> take) override {
    return disk().Read(path, [&](absl::string_view block) {
      if (stop_.stop_requested()) return absl::CancelledError("told to stop; nothing is written");
      return take(block);
    });
  }

 private:
  const std::stop_token stop_;
};

}  // namespace lodestar
