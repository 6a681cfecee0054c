# Makes a header of a file of texts: cmake -D FROM=softmax.cl -D TO=softmax.cl.h -P texts.cmake
#
# A line `//// forward: what it is` begins the text `texts::softmax::forward`; further lines of `////` below it are its
# comment. What comes before the first is the file's own comment.
get_filename_component(name "${FROM}" NAME_WE)
file(READ "${FROM}" text)
string(REGEX REPLACE "\n+//// ([a-z0-9_]+)[^\n]*(\n////[^\n]*)*\n" "\n)cl\";\n\nconstexpr const char* \\1 = R\"cl(\n" text "${text}")
# What was before the first text has no end of one.
string(FIND "${text}" ")cl\";\n" at)
if(at EQUAL -1)
  message(FATAL_ERROR "${FROM}: no line `//// name` begins a text")
endif()
string(SUBSTRING "${text}" 0 ${at} head)
math(EXPR at "${at} + 6")
string(SUBSTRING "${text}" ${at} -1 text)
file(WRITE "${TO}"
     "${head}#pragma once\n\nnamespace causeway::portable::texts::${name} {\n${text})cl\";\n\n}  // namespace causeway::portable::texts::${name}\n")
