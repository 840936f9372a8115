// SPDX-License-Identifier: Apache-2.0
// Which ops autocast casts, and to what. All of autocast is this table (amp.cpp) and Taken (dispatch.h).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace kiln::detail {

enum class AutocastList : uint8_t {
  lower,    ///< operands become the half
  f32,      ///< operands become f32
  widest,   ///< operands become the widest dtype among them, at least the half
  refused,  ///< not safe in a half: there is another op
};
struct AutocastOp {
  std::string_view name;  ///< of the op's event
  AutocastList list;
};
std::span<const AutocastOp> autocast_ops();

}  // namespace kiln::detail
