// Memory that two processes of one machine share. It has no name: it is gone with the last process
// that maps it, however that ends.
//
// The process that makes a region tells the other (process id, descriptor, nonce, size). The other
// opens it through /proc, which works only on the same machine, in the same process namespace and
// for the same user. It finds the nonce in the region, which no other process can have guessed. The
// size is sealed: a peer that shrank the region would kill every process that touches it.
//
// Contents may change at any time while they are read. A reader copies first and then checks the
// copy. A reader may check the contents in place if its peer decides what they are, and it makes no
// sense of them: that check is against damage only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lodestar {

class SharedRegion {
 public:
  // How another process finds the region.
  struct Handle {
    int64_t process_id = 0;
    int64_t descriptor = 0;
    std::string nonce;  // kNonceBytes
    uint64_t bytes = 0;
  };
  static constexpr size_t kNonceBytes = 16;
  // The nonce lies in the first of these; payload comes after them.
  static constexpr size_t kHeaderBytes = 4096;
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 32;

  // Makes a new region with room for payload_bytes after the header. Errors: those of the system,
  // as Unavailable.
  static absl::StatusOr<SharedRegion> Create(uint64_t payload_bytes);
  // Opens the region of another process, or of this one. Errors: InvalidArgument if the handle
  // cannot be one; FailedPrecondition if there is no such region here: the peer is on another
  // machine, in another container or of another user.
  static absl::StatusOr<SharedRegion> Open(const Handle& handle);

  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&& other) noexcept;
  ~SharedRegion();

  const Handle& handle() const { return handle_; }
  uint64_t size() const { return handle_.bytes; }
  // All that is mapped, from a page's begin.
  absl::Span<char> memory() const { return {memory_, handle_.bytes}; }

  // Maps all pages now, so that the first use does not. Errors: ResourceExhausted if there are not
  // enough.
  absl::Status Touch();

  // [offset, offset + bytes) after the header. Errors: InvalidArgument if it is empty or not all
  // inside; the numbers may come from anybody.
  absl::StatusOr<absl::Span<char>> Part(uint64_t offset, uint64_t bytes) const;

 private:
  SharedRegion(Handle handle, int descriptor, char* memory)
      : handle_(std::move(handle)), descriptor_(descriptor), memory_(memory) {}

  Handle handle_;
  int descriptor_ = -1;  // kept open by the maker, for the peer to find
  char* memory_ = nullptr;
};

}  // namespace lodestar
