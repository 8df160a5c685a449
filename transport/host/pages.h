// Memory whose pages are taken when they are first touched: how much of it is taken, and which part
// of it can be given back.
#pragma once

#include <cstddef>
#include <span>

namespace tutti {

/// `bytes`, rounded up to pages.
std::size_t to_page(std::size_t bytes);
/// The pages that it has a part of.
std::span<std::byte> pages_around(std::span<std::byte> memory);
/// The whole pages in it.
std::span<std::byte> whole_pages(std::span<std::byte> memory);
/// Bytes of these pages (of whole_pages()) that are taken, by whatever process maps them too.
std::size_t taken_bytes(std::span<std::byte> pages);

}  // namespace tutti
