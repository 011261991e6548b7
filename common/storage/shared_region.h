// SPDX-License-Identifier: Apache-2.0

// Memory that two processes of one machine share. It has no name, so it disappears with the last
// process that maps it, even if that process is killed.
//
// One process creates a region and tells the other its handle: process id, descriptor, nonce and
// size. The other process opens the region through /proc. That works only on the same machine, in
// the same process namespace and for the same user. The region begins with the nonce, which no
// other process can guess. So the nonce shows that it is the right region. The size is sealed: if a
// peer could shrink the region, every process that touches it would be killed.
//
// The peer may change the contents while this process reads them. So a reader must copy the
// contents first, and check the copy. It may check the contents in place only if both conditions
// hold:
// - Wrong contents harm only the peer.
// - The reader does not interpret the contents.
//
// A check in place only detects damage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lodestar::storage {

class SharedRegion {
 public:
  // A handle, with which another process finds the region.
  struct Handle {
    int64_t process_id = 0;
    int64_t descriptor = 0;
    std::string nonce;  // has kNonceBytes
    uint64_t bytes = 0;
  };
  static constexpr size_t kNonceBytes = 16;
  // Size of the header, which begins with the nonce. The payload follows the header.
  static constexpr size_t kHeaderBytes = 4096;
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 32;

  // Creates a region with room for payload_bytes after the header. Errors: those of the system, as
  // Unavailable.
  static absl::StatusOr<SharedRegion> Create(uint64_t payload_bytes);
  // Opens a region of another process or of this one. Errors: InvalidArgument (the handle is not
  // valid); FailedPrecondition (no region with this handle: the peer is on another machine, in
  // another container or of another user).
  static absl::StatusOr<SharedRegion> Open(const Handle& handle);

  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&& other) noexcept;
  ~SharedRegion();

  const Handle& handle() const { return handle_; }
  uint64_t size() const { return handle_.bytes; }
  // Returns the whole region, which begins at a page boundary.
  absl::Span<char> memory() const { return {memory_, handle_.bytes}; }

  // Maps all pages now, so that the first use is not delayed. Errors: ResourceExhausted if there is
  // not enough memory.
  absl::Status Touch();

  // Returns the bytes [offset, offset + bytes) after the header. The numbers may come from an
  // untrusted peer. Errors: InvalidArgument if the part is empty or not inside the region.
  absl::StatusOr<absl::Span<char>> Part(uint64_t offset, uint64_t bytes) const;

 private:
  SharedRegion(Handle handle, int descriptor, char* memory)
      : handle_(std::move(handle)), descriptor_(descriptor), memory_(memory) {}

  Handle handle_;
  int descriptor_ = -1;  // the creator keeps it open, so that the peer can find it
  char* memory_ = nullptr;
};

}  // namespace lodestar::storage
