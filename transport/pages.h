// Memory whose pages are taken when they are first touched: how much of it is taken, and which part
// of it can be given back.
#pragma once

#include <cstddef>
#include <span>

namespace tutti {

/// The whole pages in it.
std::span<std::byte> whole_pages(std::span<std::byte> memory);
/// Bytes of these pages (of whole_pages()) that are taken, by whatever process maps them too.
std::size_t taken_bytes(std::span<std::byte> pages);

}  // namespace tutti
