// SPDX-License-Identifier: Apache-2.0

// Makes a visitor with one function per alternative of a variant:
//   std::visit(Overloaded{[](const A&) {...}, [](const B&) {...}}, variant);
#pragma once

namespace lodestar {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace lodestar
