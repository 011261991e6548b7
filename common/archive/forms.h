// SPDX-License-Identifier: Apache-2.0

// Ways to store a field that several records use. As() in json_archive.h applies such a form.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/archive/json_archive.h"
#include "common/runtime/ids.h"
#include "common/runtime/kind_names.h"
#include "common/runtime/peer_text.h"

namespace lodestar::archive {

// Stores an unsigned number as hexadecimal text.
struct HexForm {
  static std::string Store(uint64_t value) { return absl::StrCat(absl::Hex(value)); }
  static absl::Status Load(const std::string& text, uint64_t& value) {
    return absl::SimpleHexAtoi(text, &value) ? absl::OkStatus() : NotA("a hexadecimal number");
  }
};

// Stores the bits of a floating-point number, so that NaN can be stored.
struct BitsForm {
  static uint64_t Store(double value) { return std::bit_cast<uint64_t>(value); }
  static uint32_t Store(float value) { return std::bit_cast<uint32_t>(value); }
  static absl::Status Load(uint64_t bits, double& value) {
    value = std::bit_cast<double>(bits);
    return absl::OkStatus();
  }
  static absl::Status Load(uint32_t bits, float& value) {
    value = std::bit_cast<float>(bits);
    return absl::OkStatus();
  }
};

// Stores a finite number. Other values are stored as null.
struct FiniteForm {
  static std::optional<double> Store(const std::optional<double>& value) {
    return value.has_value() && std::isfinite(*value) ? value : std::nullopt;
  }
  static absl::Status Load(const std::optional<double>& stored, std::optional<double>& value) {
    value = stored;
    return absl::OkStatus();
  }
};

// Stores a number or a StrongInt. If a stored number is less than `kMinimum`, reading fails.
template <int64_t kMinimum>
struct AtLeast {
  template <typename Number>
  requires std::is_arithmetic_v<Number>
  static Number Store(Number value) { return value; }
  template <typename Tag, typename Rep>
  static Rep Store(StrongInt<Tag, Rep> value) {
    return value.value();
  }
  template <typename Number, typename Value>
  static absl::Status Load(Number number, Value& value) {
    // NaN fails this comparison. An unsigned number may exceed int64_t, so kMinimum is converted
    // instead of the number.
    const bool is_in_range =
        std::is_unsigned_v<Number> ? number >= static_cast<Number>(kMinimum) : number >= kMinimum;
    if (!is_in_range) return NotA(absl::StrCat("at least ", kMinimum));
    value = Value(number);
    return absl::OkStatus();
  }
};

// Stores a duration in whole milliseconds, or a time in whole milliseconds since 1970.
struct MillisecondsForm {
  static int64_t Store(absl::Duration value) { return absl::ToInt64Milliseconds(value); }
  static int64_t Store(absl::Time value) { return absl::ToUnixMillis(value); }
  static absl::Status Load(int64_t milliseconds, absl::Duration& value) {
    value = absl::Milliseconds(milliseconds);
    return absl::OkStatus();
  }
  static absl::Status Load(int64_t milliseconds, absl::Time& value) {
    value = absl::FromUnixMillis(milliseconds);
    return absl::OkStatus();
  }
};

// Stores text that another process has written. Reading replaces what is not safe to show: see
// PeerText().
struct PeerTextForm {
  static std::string Store(const std::string& text) { return text; }
  static absl::Status Load(const std::string& stored, std::string& text) {
    constexpr size_t kMaxBytes = 256;
    text = PeerText(stored, kMaxBytes);
    return absl::OkStatus();
  }
};

// Stores a value of an enum by its name in the table `kNames`, an array of NamedKind.
template <const auto& kNames>
struct NameForm {
  using Kind = decltype(kNames[0].kind);

  static std::string Store(const std::remove_const_t<Kind>& value) {
    for (const auto& [kind, name] : kNames) {
      if (kind == value) return std::string(name);
    }
    return "";
  }
  static absl::Status Load(const std::string& text, std::remove_const_t<Kind>& value) {
    std::string known;
    for (const auto& [kind, name] : kNames) {
      if (name == text) {
        value = kind;
        return absl::OkStatus();
      }
      absl::StrAppend(&known, known.empty() ? "" : ", ", name);
    }
    return NotA(absl::StrCat("one of ", known));
  }
};

}  // namespace lodestar::archive
