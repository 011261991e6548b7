// SPDX-License-Identifier: Apache-2.0

// StoppableFileSystem is a disk for commands that copy files. Once the operator requests a stop,
// Read() returns Cancelled, even in the middle of a file. So the command ends soon.
#pragma once

#include <stop_token>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/storage/forwarding_file_system.h"

namespace lodestar::psctl {

// Thread-safe if the disk is.
class StoppableFileSystem final : public storage::ForwardingFileSystem {
 public:
  // `disk` must outlive this object.
  StoppableFileSystem(storage::FileSystem* disk, std::stop_token stop)
      : storage::ForwardingFileSystem(disk), stop_(std::move(stop)) {}

  // Reads a file. Errors also: Cancelled (a stop was requested). Other calls still work after a
  // stop, so that the command can remove files it has written.
  absl::Status Read(const std::string& path,
                    absl::FunctionRef<absl::Status(absl::string_view block)> take) override {
    return disk().Read(path, [&](absl::string_view block) {
      if (stop_.stop_requested())
        return absl::CancelledError("stopped on request; nothing is written");
      return take(block);
    });
  }

 private:
  const std::stop_token stop_;
};

}  // namespace lodestar::psctl
