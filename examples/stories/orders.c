// Adds up orders that a Lua script parses, one a line: `orders SCRIPT < ORDERS`. The function that
// it offers to scripts leaks a block whenever it raises an error, because Lua leaves it by longjmp.
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// parse("4711;glass;12") returns the article and the number of an order.
static int parse_order(lua_State *lua) {
    char *copy = strdup(luaL_checkstring(lua, 1));
    strtok(copy, ";");
    char *article = strtok(NULL, ";");
    char *count = strtok(NULL, ";");
    if (!count || atoi(count) == 0) return luaL_error(lua, "an order of nothing");
    lua_pushstring(lua, article);
    lua_pushinteger(lua, atoi(count));
    free(copy);
    return 2;
}

int main(int count, char **arguments) {
    lua_State *lua = luaL_newstate();
    luaL_openlibs(lua);
    lua_register(lua, "parse", parse_order);
    int failed = count < 2 || luaL_dofile(lua, arguments[1]);
    if (failed) fprintf(stderr, "orders: %s\n", count < 2 ? "no script" : lua_tostring(lua, -1));
    lua_close(lua);
    return failed;
}
