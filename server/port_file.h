// --port_file: the file that has the port at which a server listens, for scripts that wait for it.
//
// A file that is there names a server that listens, or one that was killed. So a process removes
// what an earlier one has left before it waits for anything, and its own file when it ends in
// order.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/runtime/file_descriptor.h"

namespace lodestar::server {

// The file of this process, which is removed with this object. Not thread-safe.
class PortFile {
 public:
  // Removes what an earlier process has left at `path`. The file of one that runs stays, for a
  // standby whose flags are the same. An empty file stays, too. An empty path does nothing. Errors:
  // InvalidArgument if the file that is there holds no port; those of CheckOutput(). All of them
  // name the flag and the path.
  static absl::Status Clear(const std::string& path);
  // Writes `port` and a line end, all at once. An empty path writes nothing. Errors: those of
  // files.
  static absl::StatusOr<PortFile> Write(const std::string& path, int port);

  PortFile(PortFile&& other) noexcept;
  PortFile& operator=(PortFile&&) = delete;
  // Leaves a file that another process has put there since.
  ~PortFile();

 private:
  PortFile(std::string path, FileDescriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  std::string path_;  // without links; empty means that nothing was written
  // It holds a lock, by which other processes see that this one lives.
  FileDescriptor descriptor_;
};

}  // namespace lodestar::server
