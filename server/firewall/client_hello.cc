// SPDX-License-Identifier: Apache-2.0

#include "server/firewall/client_hello.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"

namespace lodestar::firewall {
namespace {

constexpr size_t kMessageHeaderBytes = 4;
constexpr size_t kMaxRecordBytes = 1 << 14;
constexpr uint32_t kHandshakeRecord = 22;
constexpr uint32_t kClientHelloMessage = 1;
constexpr size_t kVersionAndRandomBytes = 2 + 32;
constexpr uint32_t kSupportedVersions = 0x002b;
constexpr uint32_t kTls13 = 0x0304;

// Reads the fields of a message, one after another. A function returns nothing if its field is
// incomplete.
class Fields {
 public:
  explicit Fields(absl::string_view bytes) : bytes_(bytes) {}

  bool is_empty() const { return bytes_.empty(); }
  // Reads a big-endian number.
  std::optional<uint32_t> Number(size_t num_bytes) {
    const std::optional<absl::string_view> field = Bytes(num_bytes);
    if (!field.has_value()) return std::nullopt;
    uint32_t number = 0;
    for (const char byte : *field) number = number << 8 | static_cast<uint8_t>(byte);
    return number;
  }
  std::optional<absl::string_view> Bytes(size_t num_bytes) {
    if (num_bytes > bytes_.size()) return std::nullopt;
    const absl::string_view field = bytes_.substr(0, num_bytes);
    bytes_.remove_prefix(num_bytes);
    return field;
  }
  // Reads a length of `length_bytes` bytes, and then as many bytes as it says.
  std::optional<absl::string_view> Vector(size_t length_bytes) {
    const std::optional<uint32_t> length = Number(length_bytes);
    return length.has_value() ? Bytes(*length) : std::nullopt;
  }

 private:
  absl::string_view bytes_;
};

ClientHello ClassifyVersions(absl::string_view extension) {
  Fields outer(extension);
  const std::optional<absl::string_view> listed = outer.Vector(1);
  if (!listed.has_value() || !outer.is_empty()) return ClientHello::kMalformed;
  Fields versions(*listed);
  while (!versions.is_empty()) {
    const std::optional<uint32_t> version = versions.Number(2);
    if (!version.has_value()) return ClientHello::kMalformed;
    if (*version == kTls13) return ClientHello::kOffersTls13;
  }
  return ClientHello::kOlder;
}

// Source: RFC 8446, 4.1.2.
ClientHello ClassifyMessage(absl::string_view message) {
  Fields fields(message);
  const bool is_whole = fields.Bytes(kVersionAndRandomBytes).has_value() &&
                        fields.Vector(1).has_value() &&  // session id
                        fields.Vector(2).has_value() &&  // cipher suites
                        fields.Vector(1).has_value();    // compression
  if (!is_whole) return ClientHello::kMalformed;
  if (fields.is_empty()) return ClientHello::kOlder;  // a version without extensions
  const std::optional<absl::string_view> listed = fields.Vector(2);
  if (!listed.has_value() || !fields.is_empty()) return ClientHello::kMalformed;
  Fields extensions(*listed);
  while (!extensions.is_empty()) {
    const std::optional<uint32_t> type = extensions.Number(2);
    const std::optional<absl::string_view> data = extensions.Vector(2);
    if (!type.has_value() || !data.has_value()) return ClientHello::kMalformed;
    if (*type == kSupportedVersions) return ClassifyVersions(*data);
  }
  return ClientHello::kOlder;
}

}  // namespace

ClientHello ClassifyClientHello(absl::string_view bytes) {
  const ClientHello unless_more_comes =
      bytes.size() < kMaxClientHelloBytes ? ClientHello::kIncomplete : ClientHello::kMalformed;
  bytes = bytes.substr(0, kMaxClientHelloBytes);
  // A client may send one message in several records.
  std::string message;
  Fields records(bytes);
  while (true) {
    const std::optional<uint32_t> type = records.Number(1);
    const std::optional<uint32_t> version = records.Number(2);
    const std::optional<uint32_t> length = records.Number(2);
    if (type.has_value() && *type != kHandshakeRecord) return ClientHello::kMalformed;
    if (version.has_value() && *version >> 8 != 3) return ClientHello::kMalformed;
    if (!length.has_value()) return unless_more_comes;
    if (*length == 0 || *length > kMaxRecordBytes) return ClientHello::kMalformed;
    const std::optional<absl::string_view> part = records.Bytes(*length);
    if (!part.has_value()) return unless_more_comes;
    absl::StrAppend(&message, *part);
    if (message.size() < kMessageHeaderBytes) continue;
    Fields fields(message);
    if (*fields.Number(1) != kClientHelloMessage) return ClientHello::kMalformed;
    const size_t size = *fields.Number(3);
    if (size > kMaxClientHelloBytes) return ClientHello::kMalformed;
    const std::optional<absl::string_view> body = fields.Bytes(size);
    if (!body.has_value()) continue;
    return fields.is_empty() ? ClassifyMessage(*body) : ClientHello::kMalformed;
  }
}

}  // namespace lodestar::firewall
