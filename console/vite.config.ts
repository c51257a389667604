import { fileURLToPath } from 'node:url'
import react from '@vitejs/plugin-react'
import type { Plugin } from 'vite'
import { defineConfig } from 'vitest/config'

const mock = process.env.CONSOLE_SERVER ?? 'http://127.0.0.1:8090'

// The first script imports the rest. A browser would load it only then, unless the document names it.
const preloadMain: Plugin = {
  name: 'preload-main',
  transformIndexHtml: {
    order: 'post',
    handler: (_, { bundle = {} }) => {
      const names = new Set<string>()
      const visit = (name: string) => {
        const chunk = bundle[name]
        if (chunk?.type !== 'chunk' || chunk.isEntry || names.has(name)) return
        names.add(name)
        chunk.imports.forEach(visit)
      }
      for (const [name, chunk] of Object.entries(bundle)) if (chunk.type === 'chunk' && chunk.facadeModuleId?.endsWith('/src/main.tsx')) visit(name)
      return [...names].map((name) => ({ tag: 'link', attrs: { rel: 'modulepreload', crossorigin: true, href: `./${name}` }, injectTo: 'head' as const }))
    },
  },
}

export default defineConfig({
  base: './',
  plugins: [react(), preloadMain],
  // The client stands outside of this folder, and has no packages of its own.
  resolve: { alias: { '@fleetloop/client': fileURLToPath(new URL('../client/typescript', import.meta.url)) }, dedupe: ['openapi-fetch'] },
  server: { fs: { allow: ['.', '../client/typescript'] }, proxy: { '/api': mock, '/console': mock } },
  build: {
    outDir: process.env.CONSOLE_DIST ?? '../internal/console/dist',
    emptyOutDir: true,
    target: 'es2022',
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    rollupOptions: {
      // The directive "use client" is for servers that render; nothing here does.
      onwarn: (warning, warn) => {
        if (warning.code !== 'MODULE_LEVEL_DIRECTIVE') warn(warning)
      },
    },
  },
  test: { include: ['test/**/*.test.ts'], environment: 'node' },
})
