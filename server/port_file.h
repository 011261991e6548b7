// SPDX-License-Identifier: Apache-2.0

// PortFile is the file of --port_file. It has the port at which a server listens, for scripts that
// wait for the server.
//
// An existing file belongs to a server that listens, or to one that was killed. So a process
// removes the file of an earlier process before it waits for anything. When it ends normally, it
// also removes its own file.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/runtime/file_descriptor.h"

namespace lodestar::server {

// The file of this process. It is removed with this object. The class is not thread-safe.
class PortFile {
 public:
  // Removes the file that an ended process has left at `path`. These files stay:
  // - the file of a running process, because this process may be a standby with the same flags
  // - an empty file
  //
  // An empty path does nothing. Errors: InvalidArgument (the file holds no port); those of
  // CheckOutput(). All of them name the flag and the path.
  static absl::Status Clear(const std::string& path);
  // Writes `port` and a line end. Readers see either no file or the complete file. An empty path
  // writes nothing. Errors: those of files.
  static absl::StatusOr<PortFile> Write(const std::string& path, int port);

  PortFile(PortFile&& other) noexcept;
  PortFile& operator=(PortFile&&) = delete;
  // Removes the file, unless another process has replaced it since.
  ~PortFile();

 private:
  PortFile(std::string path, FileDescriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  std::string path_;  // with links resolved; empty means that nothing was written
  // Holds a lock on the file, by which other processes see that this process runs.
  FileDescriptor descriptor_;
};

}  // namespace lodestar::server
